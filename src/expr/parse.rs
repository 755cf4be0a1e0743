//! Parses the text of an expression into a tree, by precedence.

use crate::expr::literals;
use crate::tep::operators::BinaryOperator;
use crate::tep::types::{IntType, from_words};

/// Limit of the bytes of a text.
const MAX_TEXT: usize = 4096;
/// Deeper nesting is refused: parsing and compiling recurse.
const MAX_DEPTH: usize = 100;
/// Limit of the operators, indexes and arguments in one text: the tree of `a+a+a` is as deep as the text is long.
const MAX_OPERATORS: usize = 500;

/// The message of a fault, and its byte offset.
pub type ParseFault = (String, usize);

/// A part of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprNode {
    /// Byte offset of the node in the text.
    pub offset: usize,
    pub kind: ExprKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprKind {
    /// A number by its bits; `unsigned` when it does not fit in 63 bits.
    Number {
        bits: u64,
        unsigned: bool,
    },
    /// Text in quotes.
    Text(Vec<u8>),
    /// A field, a built-in variable or a constant.
    Name(String),
    Unary(UnaryOperator, Box<ExprNode>),
    Binary(BinaryOperator, Box<[ExprNode; 2]>),
    /// `a ~ b`, text and pattern.
    Glob(Box<[ExprNode; 2]>),
    /// `a[b]`
    Index(Box<[ExprNode; 2]>),
    Cast(IntType, Box<ExprNode>),
    Call(String, Vec<ExprNode>),
    And(Box<[ExprNode; 2]>),
    Or(Box<[ExprNode; 2]>),
    Choice(Box<[ExprNode; 3]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOperator {
    Minus,
    Complement,
    Not,
}

/// An operator between two operands. Logical operators may skip the second operand.
#[derive(Clone, Copy)]
enum Infix {
    Plain(BinaryOperator),
    Glob,
    And,
    Or,
}

/// Operators; a longer one stands before its prefixes. A larger number binds tighter.
const INFIX: [(&str, u8, Infix); 19] = [
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
    ("~", 7, Infix::Glob),
    ("|", 3, Infix::Plain(BinaryOperator::BitOr)),
    ("^", 4, Infix::Plain(BinaryOperator::BitXor)),
    ("&", 5, Infix::Plain(BinaryOperator::BitAnd)),
    ("+", 9, Infix::Plain(BinaryOperator::Add)),
    ("-", 9, Infix::Plain(BinaryOperator::Subtract)),
    ("*", 10, Infix::Plain(BinaryOperator::Multiply)),
    ("/", 10, Infix::Plain(BinaryOperator::Divide)),
    ("%", 10, Infix::Plain(BinaryOperator::Remainder)),
];

/// Operators of C that are not supported, and why: those in front of an operand, and those behind one.
const REFUSED_PREFIXES: [(&str, &str); 4] = [
    ("++", NO_ASSIGNMENT),
    ("--", NO_ASSIGNMENT),
    ("*", "nothing is read through a pointer: an expression sees the fields of the record, and an element as name[0]"),
    ("&", "a field has no address: an expression sees the values of the record"),
];
const REFUSED_INFIXES: [(&str, &str); 3] = [("=", NO_ASSIGNMENT), ("++", NO_ASSIGNMENT), ("--", NO_ASSIGNMENT)];
const NO_ASSIGNMENT: &str = "nothing can be assigned: write == to compare, + 1 to add";
const REFUSED_CALLS: [(&str, &str); 3] = [
    ("printf", "an expression prints nothing: `perf-prof trace` shows fields, `perf-prof expr` the value"),
    ("system", "an expression runs no commands"),
    ("exit_reason_str", "the exits of virtual machines have no names here"),
];

/// The tree of a whole text.
pub fn parse(text: &str) -> Result<ExprNode, ParseFault> {
    if text.len() > MAX_TEXT {
        return Err((format!("longer than {MAX_TEXT} bytes"), 0));
    }
    let mut parser = ExprParser { text, offset: 0, depth: 0, operators: 0 };
    let root = parser.choice()?;
    match parser.rest().chars().next() {
        None => Ok(root),
        Some(')') => parser.fault("this `)` closes nothing"),
        Some(']') => parser.fault("this `]` closes nothing"),
        Some(',') => parser.fault("one expression is enough: there is no `,`"),
        Some(_) => parser.fault("an operator is missing here, as in a + b"),
    }
}

struct ExprParser<'a> {
    text: &'a str,
    offset: usize,
    depth: usize,
    operators: usize,
}

impl<'a> ExprParser<'a> {
    /// The unread text, without blanks in front.
    fn rest(&mut self) -> &'a str {
        let rest = self.text.get(self.offset..).unwrap_or_default();
        let trimmed = rest.trim_start();
        self.offset += rest.len() - trimmed.len();
        trimmed
    }

    fn takes(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        self.offset += if is_next { token.len() } else { 0 };
        is_next
    }

    fn fault<T>(&self, message: impl Into<String>) -> Result<T, ParseFault> {
        Err((message.into(), self.offset))
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

    /// Counts an operator.
    fn operator(&mut self) -> Result<(), ParseFault> {
        self.operators += 1;
        if self.operators > MAX_OPERATORS { self.fault("too many operators") } else { Ok(()) }
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
            let at = condition.offset;
            Ok(ExprNode { offset: at, kind: ExprKind::Choice(Box::new([condition, then, parser.choice()?])) })
        })
    }

    /// Parses operators that bind tighter than `above`.
    fn infix(&mut self, above: u8) -> Result<ExprNode, ParseFault> {
        let mut left = self.unary()?;
        loop {
            let rest = self.rest();
            if let Some((_, why)) = REFUSED_INFIXES.iter().find(|(token, _)| is_token(rest, token)) {
                return self.fault(*why);
            }
            let next = INFIX.iter().find(|(token, ..)| rest.starts_with(token));
            let Some(&(token, level, infix)) = next.filter(|(_, level, _)| *level > above) else { return Ok(left) };
            self.offset += token.len();
            self.operator()?;
            let right = self.deeper(|parser| parser.infix(level))?;
            let at = left.offset;
            let both = Box::new([left, right]);
            let kind = match infix {
                Infix::Plain(binary) => ExprKind::Binary(binary, both),
                Infix::Glob => ExprKind::Glob(both),
                Infix::And => ExprKind::And(both),
                Infix::Or => ExprKind::Or(both),
            };
            left = ExprNode { offset: at, kind };
        }
    }

    fn unary(&mut self) -> Result<ExprNode, ParseFault> {
        let operators = [
            ("-", Some(UnaryOperator::Minus)),
            ("+", None),
            ("~", Some(UnaryOperator::Complement)),
            ("!", Some(UnaryOperator::Not)),
        ];
        let rest = self.rest();
        let at = self.offset;
        if let Some((_, why)) = REFUSED_PREFIXES.iter().find(|(token, _)| rest.starts_with(token)) {
            return self.fault(*why);
        }
        for (token, unary) in operators {
            if self.takes(token) {
                let inner = self.deeper(Self::unary)?;
                return Ok(match unary {
                    Some(unary) => ExprNode { offset: at, kind: ExprKind::Unary(unary, Box::new(inner)) },
                    None => inner,
                });
            }
        }
        if let Some((ty, used)) = type_in_parentheses(rest)? {
            self.offset += used;
            let inner = self.deeper(Self::unary)?;
            return Ok(ExprNode { offset: at, kind: ExprKind::Cast(ty, Box::new(inner)) });
        }
        self.postfix()
    }

    fn postfix(&mut self) -> Result<ExprNode, ParseFault> {
        let mut node = self.primary()?;
        while self.rest().starts_with('[') {
            let open = self.offset;
            self.offset += 1;
            self.operator()?;
            let index = self.choice()?;
            if !self.takes("]") {
                return Err(("this `[` is never closed".to_owned(), open));
            }
            node = ExprNode { offset: node.offset, kind: ExprKind::Index(Box::new([node, index])) };
        }
        Ok(node)
    }

    fn primary(&mut self) -> Result<ExprNode, ParseFault> {
        let rest = self.rest();
        let at = self.offset;
        let word = first_word(rest);
        if self.takes("(") {
            let inner = self.choice()?;
            if !self.takes(")") {
                return Err(("this `(` is never closed".to_owned(), at));
            }
            return Ok(inner);
        }
        let kind = match rest.bytes().next() {
            Some(b'"' | b'\'') => self.quoted(rest)?,
            Some(b'0'..=b'9') => {
                let Some(bits) = literals::number(word) else {
                    return self.fault(format!("`{word}` is no number of 64 bits, write 10, 0x1f or 017"));
                };
                self.offset += word.len();
                ExprKind::Number { bits, unsigned: bits > i64::MAX as u64 }
            }
            Some(_) if !word.is_empty() => {
                self.offset += word.len();
                match self.rest().starts_with('(') {
                    true => self.call(word, at)?,
                    false => ExprKind::Name(word.to_owned()),
                }
            }
            None => return self.fault("a field or a number is missing here"),
            Some(_) => return self.fault("neither a field nor a number"),
        };
        Ok(ExprNode { offset: at, kind })
    }

    fn quoted(&mut self, rest: &str) -> Result<ExprKind, ParseFault> {
        let (bytes, used) = literals::quoted(rest).map_err(|(message, at)| (message, self.offset + at))?;
        let is_text = rest.starts_with('"');
        let kind = match &bytes[..] {
            _ if is_text => ExprKind::Text(bytes),
            [byte] => ExprKind::Number { bits: u64::from(*byte), unsigned: false },
            _ => return self.fault("a character of one byte is in single quotes, text in double ones"),
        };
        self.offset += used;
        Ok(kind)
    }

    /// Parses the arguments of a function, whose name was read.
    fn call(&mut self, name: &str, at: usize) -> Result<ExprKind, ParseFault> {
        if let Some((_, why)) = REFUSED_CALLS.iter().find(|(refused, _)| *refused == name) {
            return Err(((*why).to_owned(), at));
        }
        let rest = self.rest();
        let open = self.offset;
        if name == "sizeof" {
            let Some((ty, used)) = type_in_parentheses(rest)? else {
                return Err(("sizeof is of a type, as in sizeof(long)".to_owned(), open));
            };
            self.offset += used;
            return Ok(ExprKind::Number { bits: ty.size as u64, unsigned: false });
        }
        self.offset += 1;
        let mut arguments = Vec::new();
        while !self.takes(")") {
            if !arguments.is_empty() && !self.takes(",") {
                return match self.rest() {
                    "" => Err(("this `(` is never closed".to_owned(), open)),
                    _ => self.fault("a `,` or `)` is missing here"),
                };
            }
            self.operator()?;
            arguments.push(self.choice()?);
        }
        Ok(ExprKind::Call(name.to_owned(), arguments))
    }
}

/// Whether `rest` starts with `token`; `==` does not count as `=`.
fn is_token(rest: &str, token: &str) -> bool {
    rest.strip_prefix(token).is_some_and(|behind| token != "=" || !behind.starts_with('='))
}

fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// The type in a cast such as `(unsigned char)`, and its length with the parentheses. None: the text is no cast.
fn type_in_parentheses(text: &str) -> Result<Option<(IntType, usize)>, ParseFault> {
    let Some((inside, _)) = text.strip_prefix('(').and_then(|inside| inside.split_once(')')) else { return Ok(None) };
    let (words, stars) = inside.split_at(inside.find('*').unwrap_or(inside.len()));
    let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !words.split_whitespace().all(is_word) || stars.contains(|c: char| c != '*' && !c.is_whitespace()) {
        return Ok(None);
    }
    let ty = from_words(words.split_whitespace(), 8).filter(|ty| matches!(ty.size, 1 | 2 | 4 | 8));
    let is_void = words.split_whitespace().any(|word| word == "void");
    let ty = if stars.is_empty() { ty } else { ty.or(is_void.then_some(IntType::U64)).map(|_| IntType::U64) };
    Ok(ty.map(|ty| (ty, inside.len() + 2)))
}
