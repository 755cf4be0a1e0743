//! Expressions in `decltype` and in template arguments.
//!
//! ```text
//! EXPRESSION = OPERATOR EXPRESSION ... | LITERAL | PARAMETER | "fp" [ NUMBER ] "_" | UNRESOLVED
//!            | "cl" EXPRESSION+ "E" ...
//! UNRESOLVED = [ "gs" ] ( NAME [ ARGUMENTS ] | "on" OPERATOR | "dn" TYPE | "sr" TYPE NAME
//!            | "srN" TYPE NAME+ "E" NAME | "sr" NAME+ "E" NAME )
//! LITERAL    = "L" TYPE [ "n" ] VALUE "E" | "L" [ "_" ] "Z" ENCODING "E"
//! ```

use super::parser::Parser;
use super::tables::{Operator, OperatorForm, operator_of};
use super::tree::{Node, NodeId, NodeList};

impl<'a> Parser<'a> {
    pub fn expression(&mut self) -> Option<NodeId> {
        self.nest(|parser| match parser.peek()? {
            b'L' => parser.literal(),
            b'T' => parser.template_parameter(),
            b'0'..=b'9' => parser.simple_name(),
            b'f' => parser.parameter_or_fold(),
            b's' => parser.expression_of_s(),
            b'd' => parser.expression_of_d(),
            b'u' => parser.vendor_call(),
            _ => parser.by_code(),
        })
    }

    /// An expression with a code of its own, else an operation.
    fn by_code(&mut self) -> Option<NodeId> {
        match &self.peek_code()? {
            b"gs" => self.behind("gs", Self::expression, Node::Global),
            b"on" => {
                self.expect("on")?;
                let name = self.operator_name()?;
                self.maybe_template(name)
            }
            b"cv" => self.conversion(),
            b"il" => self.behind("il", Self::braced_items, |items| Node::Braced(None, items)),
            b"tl" => {
                self.expect("tl")?;
                let of = self.ty()?;
                let items = self.braced_items()?;
                self.add(Node::Braced(Some(of), items))
            }
            b"tr" => self.word("tr", "throw"),
            b"rq" | b"rQ" => self.requires(),
            _ => self.operation(),
        }
    }

    fn word(&mut self, code: &str, text: &'static str) -> Option<NodeId> {
        self.expect(code)?;
        self.add(Node::Word(text))
    }

    fn expression_of_s(&mut self) -> Option<NodeId> {
        match &self.peek_code()? {
            b"sr" => self.unresolved(),
            b"sp" => self.behind("sp", Self::expression, Node::Expansion),
            b"sZ" => self.behind("sZ", Self::expression, Node::SizeofPack),
            b"sP" => self.behind("sP", |parser| parser.list_to_end(Self::template_argument), Node::SizeofArguments),
            _ => self.operation(),
        }
    }

    fn expression_of_d(&mut self) -> Option<NodeId> {
        match &self.peek_code()? {
            b"dn" => {
                self.expect("dn")?;
                let of = if self.peek()?.is_ascii_digit() { self.simple_name()? } else { self.ty()? };
                self.add(Node::DestructorName(of))
            }
            b"di" | b"dx" | b"dX" => self.braced(),
            _ => self.operation(),
        }
    }

    /// An operator and its operands.
    fn operation(&mut self) -> Option<NodeId> {
        let operator = operator_of(self.peek_code()?)?;
        self.next();
        self.next();
        match operator.form {
            OperatorForm::Prefix | OperatorForm::OfValue => {
                self.behind("", Self::expression, |operand| Node::Unary(operator, operand))
            }
            OperatorForm::Step => {
                let is_prefix = self.eat("_");
                let operand = self.expression()?;
                self.add(if is_prefix { Node::Unary(operator, operand) } else { Node::Postfix(operator, operand) })
            }
            OperatorForm::Infix | OperatorForm::Subscript => {
                let (left, right) = (self.expression()?, self.expression()?);
                self.add(Node::Binary(operator, left, right))
            }
            OperatorForm::Member => {
                let (left, right) = (self.expression()?, self.member()?);
                self.add(Node::Binary(operator, left, right))
            }
            OperatorForm::Choice => {
                let (condition, first, second) = (self.expression()?, self.expression()?, self.expression()?);
                self.add(Node::Choice(condition, first, second))
            }
            OperatorForm::Call => {
                let function = self.expression()?;
                let arguments = self.list_to_end(Self::expression)?;
                self.add(Node::Call(function, arguments))
            }
            OperatorForm::NamedCast => {
                let (to, value) = (self.ty()?, self.expression()?);
                self.add(Node::Binary(operator, to, value))
            }
            OperatorForm::OfType => self.behind("", Self::ty, |of| Node::Unary(operator, of)),
            OperatorForm::New => self.new_expression(operator),
        }
    }

    /// A name behind `.` or `->`.
    fn member(&mut self) -> Option<NodeId> {
        self.nest(|parser| match parser.peek()? {
            b'0'..=b'9' => parser.simple_name(),
            b'a'..=b'z' if !matches!(&parser.peek_code()?, b"on" | b"dn" | b"sr" | b"gs") => {
                let name = parser.operator_name()?; // older compilers omit "on"
                parser.maybe_template(name)
            }
            _ => parser.expression(),
        })
    }

    fn new_expression(&mut self, operator: &'static Operator) -> Option<NodeId> {
        let placement = self.list(|parser| parser.eat("_"), Self::expression)?;
        let of = self.ty()?;
        let with = match &self.peek_code()? {
            b"pi" => Some(self.behind("pi", |parser| parser.list_to_end(Self::expression), Node::Parenthesized)?),
            b"il" => Some(self.expression()?),
            _ => {
                self.expect("E")?;
                None
            }
        };
        self.add(Node::New { operator, placement, of, with })
    }

    fn conversion(&mut self) -> Option<NodeId> {
        self.expect("cv")?;
        let to = self.ty()?;
        let value = if self.eat("_") {
            self.behind("", |parser| parser.list_to_end(Self::expression), Node::Parenthesized)?
        } else {
            self.expression()?
        };
        self.add(Node::Cast(to, value))
    }

    fn braced_items(&mut self) -> Option<NodeList> {
        self.list_to_end(Self::braced)
    }

    /// An initializer: `.a = 1`, `[2] = 3`, `[4 ... 5] = 6`, or an expression.
    fn braced(&mut self) -> Option<NodeId> {
        self.nest(|parser| match &parser.peek_code()? {
            b"di" => {
                parser.expect("di")?;
                let name = parser.source_name()?;
                let place = parser.add(Node::Name(name))?;
                let value = parser.braced()?;
                parser.add(Node::Designated { place, value, is_index: false })
            }
            b"dx" => {
                parser.expect("dx")?;
                let (place, value) = (parser.expression()?, parser.braced()?);
                parser.add(Node::Designated { place, value, is_index: true })
            }
            b"dX" => {
                parser.expect("dX")?;
                let (first, last, value) = (parser.expression()?, parser.expression()?, parser.braced()?);
                parser.add(Node::DesignatedRange(first, last, value))
            }
            _ => parser.expression(),
        })
    }

    /// `fp_`, `fpT`, `fL0p_`: a parameter of the function; `fl`, `fr`, `fL`, `fR`: a fold.
    fn parameter_or_fold(&mut self) -> Option<NodeId> {
        self.expect("f")?;
        let kind = self.next()?;
        let is_level = kind == b'L' && self.peek()?.is_ascii_digit();
        if kind == b'p' || is_level {
            if self.eat("T") {
                return self.add(Node::Word("this"));
            }
            if is_level {
                self.number()?;
                self.expect("p")?;
            }
            self.qualifiers();
            let index = self.number_from_underscore()?;
            return self.add(Node::FunctionParameter(index));
        }
        let operator = operator_of(self.peek_code()?).filter(|operator| operator.form == OperatorForm::Infix)?;
        self.next();
        self.next();
        let first = Some(self.expression()?);
        let (left, right) = match kind {
            b'l' => (None, first),
            b'r' => (first, None),
            b'L' | b'R' => (first, Some(self.expression()?)),
            _ => return None,
        };
        self.add(Node::Fold { operator, left, right })
    }

    fn vendor_call(&mut self) -> Option<NodeId> {
        self.expect("u")?;
        let name = self.source_name()?;
        let arguments = self.list_to_end(Self::template_argument)?;
        self.add(Node::VendorCall(name, arguments))
    }

    /// `foo`, `foo<int>`
    fn simple_name(&mut self) -> Option<NodeId> {
        let name = self.unqualified_name(None)?;
        self.maybe_template(name)
    }

    pub fn maybe_template(&mut self, name: NodeId) -> Option<NodeId> {
        if self.peek() != Some(b'I') {
            return Some(name);
        }
        self.template_of(name)
    }

    /// The last component of an unresolved name.
    fn base_name(&mut self) -> Option<NodeId> {
        match &self.peek_code()? {
            b"on" | b"dn" => self.expression(),
            _ => self.simple_name(),
        }
    }

    fn unresolved(&mut self) -> Option<NodeId> {
        self.expect("sr")?;
        let before = self.checkpoint();
        let is_name = self.peek()?.is_ascii_digit();
        self.is_ambiguous |= is_name;
        let other = if self.peek() == Some(b'N') { Self::unresolved_in_type } else { Self::unresolved_in_names };
        let mut readings = [other, Self::unresolved_gcc_form];
        if !is_name || self.is_gcc_form {
            readings.reverse();
        }
        readings.into_iter().find_map(|reading| {
            self.go_back(before);
            reading(self)
        })
    }

    /// The form of the ABI: names up to an `E`, then the last component.
    fn unresolved_in_names(&mut self) -> Option<NodeId> {
        let scope = self.simple_name()?;
        self.members_of(scope)
    }

    /// The form of gcc: a type, then the last component: `srSt8is_arrayIT_E5value`.
    fn unresolved_gcc_form(&mut self) -> Option<NodeId> {
        let scope = self.ty()?;
        self.member_of(scope)
    }

    fn member_of(&mut self, scope: NodeId) -> Option<NodeId> {
        let name = self.base_name()?;
        self.add(Node::Qualified(scope, name))
    }

    /// Nested names in a type: `srNT_3fooE3bar`.
    fn unresolved_in_type(&mut self) -> Option<NodeId> {
        self.expect("N")?;
        let scope = self.ty()?;
        self.members_of(scope)
    }

    /// Names up to an `E`, then the last component.
    fn members_of(&mut self, mut scope: NodeId) -> Option<NodeId> {
        while !self.eat("E") {
            self.step()?;
            scope = self.member_of(scope)?;
        }
        self.member_of(scope)
    }

    pub fn literal(&mut self) -> Option<NodeId> {
        self.expect("L")?;
        if self.eat("_Z") || self.eat("Z") {
            let of = self.encoding()?;
            self.expect("E")?;
            return Some(of);
        }
        let of = self.ty()?;
        let is_negative = self.eat("n");
        let value = self.take_while(|byte| byte != b'E')?;
        self.expect("E")?;
        self.add(Node::Literal { of, is_negative, value })
    }

    /// `requires (T a) { a + 1; { a } noexcept -> C; typename T::type; requires B; }`
    fn requires(&mut self) -> Option<NodeId> {
        let has_parameters = self.next()? == b'r' && self.next()? == b'Q';
        let parameters =
            if has_parameters { self.parameters(|parser| parser.peek() == Some(b'_'))? } else { NodeList::default() };
        if has_parameters {
            self.expect("_")?;
        }
        let requirements = self.list_to_end(Self::requirement)?;
        self.add(Node::Requires { parameters, requirements })
    }

    fn requirement(&mut self) -> Option<NodeId> {
        match self.next()? {
            b'X' => {
                let expression = self.expression()?;
                let is_noexcept = self.eat("N");
                let constraint = if self.eat("R") { Some(self.class_name()?) } else { None };
                self.add(Node::Requirement { expression, is_noexcept, constraint })
            }
            b'T' => self.behind("", Self::ty, Node::TypeRequirement),
            b'Q' => self.behind("", Self::expression, Node::NestedRequirement),
            _ => None,
        }
    }
}
