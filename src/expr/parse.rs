//! Parses the text of an expression into a tree, by precedence.

/// Deeper nesting is refused: parsing and compiling recurse.
const MAX_DEPTH: usize = 100;
/// Operators in one text: `a+a+a` leans to the left, as deep as it is long.
const MAX_OPERATORS: usize = 500;

/// The message of a fault, and its byte offset.
pub type ParseFault = (String, usize);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprNode {
    /// Bits; `unsigned` when they do not fit in 63.
    Number {
        bits: u64,
        unsigned: bool,
    },
    /// A field, and where it stands in the text.
    Field {
        name: String,
        at: usize,
    },
    Unary(UnaryOperator, Box<ExprNode>),
    Binary(BinaryOperator, Box<ExprNode>, Box<ExprNode>),
    And(Box<ExprNode>, Box<ExprNode>),
    Or(Box<ExprNode>, Box<ExprNode>),
    Choice(Box<[ExprNode; 3]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOperator {
    Minus,
    Complement,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOperator {
    Multiply,
    Divide,
    Remainder,
    Add,
    Subtract,
    ShiftLeft,
    ShiftRight,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    BitAnd,
    BitXor,
    BitOr,
}

/// An operator between two operands. The logical ones may skip the second.
#[derive(Clone, Copy)]
enum Infix {
    Plain(BinaryOperator),
    And,
    Or,
}

/// Operators, those of two characters before those that they start with. A larger number binds tighter.
const INFIX: [(&str, u8, Infix); 18] = [
    ("||", 1, Infix::Or),
    ("&&", 2, Infix::And),
    ("<<", 8, Infix::Plain(BinaryOperator::ShiftLeft)),
    (">>", 8, Infix::Plain(BinaryOperator::ShiftRight)),
    ("<=", 7, Infix::Plain(BinaryOperator::LessEqual)),
    (">=", 7, Infix::Plain(BinaryOperator::GreaterEqual)),
    ("==", 6, Infix::Plain(BinaryOperator::Equal)),
    ("!=", 6, Infix::Plain(BinaryOperator::NotEqual)),
    ("<", 7, Infix::Plain(BinaryOperator::Less)),
    (">", 7, Infix::Plain(BinaryOperator::Greater)),
    ("|", 3, Infix::Plain(BinaryOperator::BitOr)),
    ("^", 4, Infix::Plain(BinaryOperator::BitXor)),
    ("&", 5, Infix::Plain(BinaryOperator::BitAnd)),
    ("+", 9, Infix::Plain(BinaryOperator::Add)),
    ("-", 9, Infix::Plain(BinaryOperator::Subtract)),
    ("*", 10, Infix::Plain(BinaryOperator::Multiply)),
    ("/", 10, Infix::Plain(BinaryOperator::Divide)),
    ("%", 10, Infix::Plain(BinaryOperator::Remainder)),
];

/// The tree of a whole text.
pub fn parse(text: &str) -> Result<ExprNode, ParseFault> {
    let mut parser = ExprParser { text, at: 0, depth: 0, operators: 0 };
    let root = parser.choice()?;
    match parser.rest().chars().next() {
        None => Ok(root),
        Some(')') => parser.fault("this `)` closes nothing"),
        Some(_) => parser.fault("an operator is missing here, as in a + b"),
    }
}

struct ExprParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    operators: usize,
}

impl<'a> ExprParser<'a> {
    /// The unread text, without blanks in front.
    fn rest(&mut self) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn takes(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    fn fault<T>(&self, message: impl Into<String>) -> Result<T, ParseFault> {
        Err((message.into(), self.at))
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, ParseFault>) -> Result<T, ParseFault> {
        if self.depth >= MAX_DEPTH {
            return self.fault("nested too deeply");
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn choice(&mut self) -> Result<ExprNode, ParseFault> {
        self.deeper(|parser| {
            let condition = parser.infix(0)?;
            if !parser.takes("?") {
                return Ok(condition);
            }
            let then = parser.choice()?;
            if !parser.takes(":") {
                return parser.fault("a `:` is missing, as in a ? b : c");
            }
            Ok(ExprNode::Choice(Box::new([condition, then, parser.choice()?])))
        })
    }

    /// Operators that bind tighter than `above`.
    fn infix(&mut self, above: u8) -> Result<ExprNode, ParseFault> {
        let mut left = self.unary()?;
        loop {
            let rest = self.rest();
            let next = INFIX.iter().find(|(token, ..)| rest.starts_with(token));
            let Some(&(token, level, infix)) = next.filter(|(_, level, _)| *level > above) else { return Ok(left) };
            self.at += token.len();
            self.operators += 1;
            if self.operators > MAX_OPERATORS {
                return self.fault("too many operators");
            }
            let right = self.deeper(|parser| parser.infix(level))?;
            left = match infix {
                Infix::Plain(binary) => ExprNode::Binary(binary, Box::new(left), Box::new(right)),
                Infix::And => ExprNode::And(Box::new(left), Box::new(right)),
                Infix::Or => ExprNode::Or(Box::new(left), Box::new(right)),
            };
        }
    }

    fn unary(&mut self) -> Result<ExprNode, ParseFault> {
        let operators = [
            ("-", Some(UnaryOperator::Minus)),
            ("+", None),
            ("~", Some(UnaryOperator::Complement)),
            ("!", Some(UnaryOperator::Not)),
        ];
        for (token, unary) in operators {
            if self.takes(token) {
                let inner = self.deeper(Self::unary)?;
                return Ok(match unary {
                    Some(unary) => ExprNode::Unary(unary, Box::new(inner)),
                    None => inner,
                });
            }
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<ExprNode, ParseFault> {
        let rest = self.rest();
        let start = self.at;
        let word: &str = {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            rest.get(..end).unwrap_or_default()
        };
        if self.takes("(") {
            let inner = self.choice()?;
            if !self.takes(")") {
                return Err(("this `(` is never closed".to_owned(), start));
            }
            return Ok(inner);
        }
        match word.bytes().next() {
            Some(b'0'..=b'9') => {
                let Some(bits) = number(word) else {
                    return self.fault(format!("`{word}` is no number of 64 bits, write 10, 0x1f or 017"));
                };
                self.at += word.len();
                Ok(ExprNode::Number { bits, unsigned: bits > i64::MAX as u64 })
            }
            Some(_) => {
                self.at += word.len();
                Ok(ExprNode::Field { name: word.to_owned(), at: start })
            }
            None if rest.is_empty() => self.fault("a field or a number is missing here"),
            None => self.fault("neither a field nor a number"),
        }
    }
}

/// Decimal, `0x` hexadecimal, or octal with a leading 0.
fn number(word: &str) -> Option<u64> {
    let (digits, radix) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        None => (word, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}
