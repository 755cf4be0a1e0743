//! Types.
//!
//! ```text
//! TYPE      = LETTER | "D" LETTER | QUALIFIERS TYPE | ("P" | "R" | "O" | "C" | "G") TYPE | NAME
//!           | PARAMETER [ ARGUMENTS ] | FUNCTION | "A" [ LEN ] "_" TYPE | "M" TYPE TYPE | "Dp" TYPE
//!           | "Dt" EXPRESSION "E" | "Dv" LEN "_" TYPE ...
//! FUNCTION  = [ QUALIFIERS ] [ EXCEPTIONS ] [ "Dx" ] "F" [ "Y" ] TYPE+ [ "R" | "O" ] "E"
//! ```
//! All types except those of one letter, or of `D` and a letter, are added to the substitutions.

use super::parser::Parser;
use super::tables::{builtin_of, long_builtin_of};
use super::tree::{Exceptions, FunctionNode, Node, NodeId, Qualifiers};

impl<'a> Parser<'a> {
    pub fn ty(&mut self) -> Option<NodeId> {
        self.nest(|parser| {
            if let Some(builtin) = parser.peek().and_then(builtin_of) {
                parser.next();
                return parser.add(Node::Builtin(builtin));
            }
            if let Some(text) = parser.long_builtin() {
                return parser.add(Node::Plain(text));
            }
            parser.compound()
        })
    }

    fn long_builtin(&mut self) -> Option<&'static str> {
        let [b'D', letter] = self.peek_code()? else { return None };
        let text = long_builtin_of(letter)?;
        self.next();
        self.next();
        Some(text)
    }

    fn compound(&mut self) -> Option<NodeId> {
        if self.is_function() {
            let function = self.function()?;
            return Some(self.substitutable(function));
        }
        let node = match self.peek()? {
            b'r' | b'V' | b'K' => self.qualified()?,
            b'P' | b'R' | b'O' | b'C' | b'G' => self.derived()?,
            b'A' => self.array()?,
            b'M' => self.member_pointer()?,
            b'T' => return self.parameter_or_elaborated(),
            b'S' if self.peek_second() != Some(b't') && !self.refers_to_module() => return self.substitution_type(),
            b'D' => return self.extended(),
            b'U' if self.peek_second().is_some_and(|byte| byte.is_ascii_digit()) => self.vendor_qualified()?,
            b'u' => self.vendor_type()?,
            _ => self.class_name()?,
        };
        Some(self.substitutable(node))
    }

    pub fn qualifiers(&mut self) -> Qualifiers {
        let is_restrict = self.eat("r");
        let is_volatile = self.eat("V");
        let is_const = self.eat("K");
        Qualifiers { is_const, is_volatile, is_restrict }
    }

    fn qualified(&mut self) -> Option<NodeId> {
        let qualifiers = self.qualifiers();
        let of = self.ty()?;
        self.add(Node::Qualify(qualifiers, of))
    }

    fn derived(&mut self) -> Option<NodeId> {
        let letter = self.next()?;
        let of = self.ty()?;
        self.add(match letter {
            b'P' => Node::Pointer(of),
            b'R' => Node::Reference { of, is_rvalue: false },
            b'O' => Node::Reference { of, is_rvalue: true },
            b'C' => Node::Suffixed(of, " _Complex"),
            _ => Node::Suffixed(of, " _Imaginary"),
        })
    }

    /// Whether a function type follows, which may begin with qualifiers of `this` and an exception specification.
    fn is_function(&self) -> bool {
        let rest = self.rest().as_bytes();
        let rest = &rest[rest.iter().take_while(|byte| matches!(byte, b'r' | b'V' | b'K')).count().min(3)..];
        matches!(rest, [b'F', ..] | [b'D', b'o' | b'O' | b'w' | b'x', ..])
    }

    fn function(&mut self) -> Option<NodeId> {
        let qualifiers = self.qualifiers();
        let exceptions = if self.eat("Do") {
            Some(Exceptions::None)
        } else if self.eat("DO") {
            let condition = self.expression()?;
            self.expect("E")?;
            Some(Exceptions::NoneIf(condition))
        } else if self.eat("Dw") {
            Some(Exceptions::Some(self.list_to_end(Self::ty)?))
        } else {
            None
        };
        let is_transaction_safe = self.eat("Dx");
        self.expect("F")?;
        self.eat("Y"); // extern "C"
        let returns = Some(self.ty()?);
        let is_end = |parser: &mut Self| matches!(parser.peek_code(), Some([b'R' | b'O', b'E'] | [b'E', _]));
        let parameters = self.parameters(|parser| is_end(parser) || parser.rest() == "E")?;
        let reference = match self.next()? {
            b'R' => "&",
            b'O' => "&&",
            _ => "",
        };
        if !reference.is_empty() {
            self.expect("E")?;
        }
        let function = FunctionNode {
            returns,
            parameters,
            qualifiers,
            reference,
            exceptions,
            is_transaction_safe,
            ..FunctionNode::default()
        };
        let place = self.tree.add_function(function)?;
        self.add(Node::FunctionType(place))
    }

    fn array(&mut self) -> Option<NodeId> {
        self.expect("A")?;
        let len = match self.peek()? {
            b'_' => None,
            _ => Some(self.len()?),
        };
        self.expect("_")?;
        let of = self.ty()?;
        self.add(Node::Array { of, len })
    }

    /// A length: a number, or an expression.
    fn len(&mut self) -> Option<NodeId> {
        if !self.peek()?.is_ascii_digit() {
            return self.expression();
        }
        let digits = self.take_while(|byte| byte.is_ascii_digit())?;
        self.add(Node::Name(digits))
    }

    fn member_pointer(&mut self) -> Option<NodeId> {
        self.expect("M")?;
        let class = self.ty()?;
        let member = self.ty()?;
        self.add(Node::MemberPointer { class, member })
    }

    fn parameter_or_elaborated(&mut self) -> Option<NodeId> {
        let words = match self.peek_second()? {
            b's' => "struct ",
            b'u' => "union ",
            b'e' => "enum ",
            _ => {
                let parameter = self.template_parameter()?;
                self.substitutable(parameter);
                return self.with_arguments(parameter);
            }
        };
        self.next();
        self.next();
        let name = self.class_name()?;
        let node = self.add(Node::Special(words, name))?;
        Some(self.substitutable(node))
    }

    /// A template template parameter with arguments: `T_IiE`. In a conversion operator, the arguments may belong to the
    /// operator instead: they do if no second list of arguments follows, or if they use substitutions that the type
    /// alone does not have.
    fn with_arguments(&mut self, parameter: NodeId) -> Option<NodeId> {
        if self.peek() != Some(b'I') {
            return Some(parameter);
        }
        let before = self.checkpoint();
        let arguments = self.template_arguments();
        if self.is_conversion && (arguments.is_none() || self.peek() != Some(b'I')) {
            self.go_back(before);
            return Some(parameter);
        }
        let node = self.add(Node::Template(parameter, arguments?))?;
        Some(self.substitutable(node))
    }

    fn substitution_type(&mut self) -> Option<NodeId> {
        let node = self.substitution()?;
        if self.peek() != Some(b'I') {
            return Some(node);
        }
        if matches!(self.tree.node(node), Node::Parameter { .. }) {
            return self.with_arguments(node);
        }
        let node = self.template_of(node)?;
        Some(self.substitutable(node))
    }

    fn vendor_qualified(&mut self) -> Option<NodeId> {
        self.expect("U")?;
        let name = self.vendor_name()?;
        let of = self.ty()?;
        self.add(Node::VendorQualified(of, name))
    }

    fn vendor_type(&mut self) -> Option<NodeId> {
        self.expect("u")?;
        self.vendor_name()
    }

    fn vendor_name(&mut self) -> Option<NodeId> {
        let node = self.behind("", Self::source_name, Node::Name)?;
        self.maybe_template(node)
    }

    /// A type whose code begins with `D`: `Dt`, `Dp`, `Dv` and so on.
    fn extended(&mut self) -> Option<NodeId> {
        let node = match self.peek_second()? {
            b't' | b'T' => self.decltype()?,
            b'p' => self.behind("Dp", Self::ty, Node::Expansion)?,
            b'v' => self.vector()?,
            b'k' => self.behind("Dk", Self::class_name, |constraint| Node::Constrained(constraint, " auto"))?,
            b'K' => {
                self.behind("DK", Self::class_name, |constraint| Node::Constrained(constraint, " decltype(auto)"))?
            }
            b'F' => return self.float(),
            b'B' | b'U' => return self.bit_int(),
            _ => return None,
        };
        Some(self.substitutable(node))
    }

    pub fn decltype(&mut self) -> Option<NodeId> {
        self.next();
        self.next();
        let expression = self.expression()?;
        self.expect("E")?;
        self.add(Node::Decltype(expression))
    }

    fn vector(&mut self) -> Option<NodeId> {
        self.expect("Dv")?;
        let len = if self.eat("_") { self.expression()? } else { self.len()? };
        self.expect("_")?;
        let of = if self.eat("p") { self.add(Node::Plain("pixel"))? } else { self.ty()? };
        self.add(Node::Vector { of, len })
    }

    /// `DF16_`, `DF16b`, `DF32x`
    fn float(&mut self) -> Option<NodeId> {
        self.expect("DF")?;
        let bits = self.take_while(|byte| byte.is_ascii_digit())?;
        let suffix = match self.next()? {
            b'_' => "",
            b'x' => "x",
            b'b' if bits == "16" => return self.add(Node::Plain("std::bfloat16_t")),
            _ => return None,
        };
        (!bits.is_empty()).then_some(())?;
        self.add(Node::Float { bits, suffix })
    }

    /// `DB8_`, `DU8_`
    fn bit_int(&mut self) -> Option<NodeId> {
        self.expect("D")?;
        let is_unsigned = self.next()? == b'U';
        let bits = self.len()?;
        self.expect("_")?;
        self.add(Node::BitInt { is_unsigned, bits })
    }
}
