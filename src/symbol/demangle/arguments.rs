//! Template arguments and parameters.
//!
//! ```text
//! ARGUMENTS = "I" ARGUMENT* [ "Q" EXPRESSION ] "E"
//! ARGUMENT  = TYPE | "X" EXPRESSION "E" | LITERAL | "J" ARGUMENT* "E" | HEAD ARGUMENT
//! PARAMETER = "T" [ "L" LEVEL "_" ] [ NUMBER ] "_"
//! HEAD      = "Ty" | "Tk" NAME | "Tn" TYPE | "Tt" HEAD* "E" | "Tp" HEAD
//! ```

use super::parser::Parser;
use super::tree::{Node, NodeId, NodeList, ParameterKind};

impl<'a> Parser<'a> {
    pub fn template_arguments(&mut self) -> Option<NodeList> {
        self.expect("I")?;
        let outer = std::mem::take(&mut self.is_conversion);
        let list = self.list(|parser| matches!(parser.peek(), Some(b'E' | b'Q')), Self::template_argument);
        self.is_conversion = outer;
        if self.eat("Q") {
            self.expression()?; // a constraint, which c++filt leaves out, too
        }
        self.expect("E")?;
        list
    }

    pub fn template_argument(&mut self) -> Option<NodeId> {
        match self.peek()? {
            b'L' => self.literal(),
            b'X' => {
                self.next();
                let expression = self.expression()?;
                self.expect("E")?;
                Some(expression)
            }
            b'I' | b'J' => {
                self.next();
                self.behind("", |parser| parser.nest(|parser| parser.list_to_end(Self::template_argument)), Node::Pack)
            }
            b'T' if self.is_head() => {
                self.head(0)?;
                self.template_argument()
            }
            _ => self.ty(),
        }
    }

    /// `T_`, `T0_`, `TL0__`
    pub fn template_parameter(&mut self) -> Option<NodeId> {
        self.expect("T")?;
        if self.eat("L") {
            self.number_from_underscore()?;
        }
        let index = self.number_from_underscore()?;
        self.add(Node::Parameter { scope: self.scope, index })
    }

    fn is_head(&self) -> bool {
        self.peek() == Some(b'T') && matches!(self.peek_second(), Some(b'y' | b'k' | b'n' | b't' | b'p'))
    }

    /// The template parameters of a lambda, in `<>`.
    pub fn lambda_heads(&mut self) -> Option<NodeList> {
        let mut indexes = [0; 3];
        self.list(
            |parser| !parser.is_head(),
            |parser| {
                let head = parser.head(0)?;
                let Node::Head { kind, detail, is_pack, .. } = parser.tree.node(head) else { return None };
                let index = &mut indexes[kind as usize];
                *index += 1;
                parser.add(Node::Head { kind, index: *index - 1, detail, is_pack })
            },
        )
    }

    fn head(&mut self, index: u32) -> Option<NodeId> {
        self.nest(|parser| {
            parser.expect("T")?;
            let mut is_pack = false;
            let (kind, detail) = match parser.next()? {
                b'y' => (ParameterKind::Type, NodeList::default()),
                b'k' => {
                    let constraint = parser.class_name()?;
                    (ParameterKind::Type, parser.tree.list([constraint].into_iter())?)
                }
                b'n' => {
                    let of = parser.ty()?;
                    (ParameterKind::Value, parser.tree.list([of].into_iter())?)
                }
                b't' => {
                    let heads = parser.list(|parser| !parser.is_head(), |parser| parser.head(0))?;
                    if parser.eat("Q") {
                        parser.expression()?;
                    }
                    parser.expect("E")?;
                    (ParameterKind::Template, heads)
                }
                b'p' => {
                    is_pack = true;
                    let head = parser.head(index)?;
                    let Node::Head { kind, detail, .. } = parser.tree.node(head) else { return None };
                    (kind, detail)
                }
                _ => return None,
            };
            parser.add(Node::Head { kind, index, detail, is_pack })
        })
    }
}
