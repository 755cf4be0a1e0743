//! Writes types: the left and right side of a declarator.

use super::printer::{PrintResult, PrintStop, Printer};
use super::tree::{Node, NodeId, NodeList, Qualifiers};

/// What the right side of a type begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TypeSuffix {
    Nothing,
    Array,
    Function,
}

impl<'a> Printer<'_, 'a> {
    #[inline(never)]
    pub fn type_left(&mut self, node: Node<'a>) -> PrintResult {
        match node {
            Node::Plain(text) => self.push(text),
            Node::Qualify(qualifiers, of) => self.qualified_left(qualifiers, of),
            Node::Pointer(of) => self.pointer_left(of, "*"),
            Node::Reference { .. } => {
                let (of, sign) = self.collapsed(node)?;
                self.pointer_left(of, sign)
            }
            Node::MemberPointer { class, member } => self.member_pointer_left(class, member),
            Node::Array { of, .. } => self.left(of),
            Node::FunctionType(function) => match self.tree.function(function).returns {
                Some(returns) => self.returned_left(returns),
                None => Ok(()),
            },
            Node::Pack(list) => self.list(list),
            Node::Expansion(pattern) => self.expansion(pattern),
            _ => self.other_type(node),
        }
    }

    #[inline(never)]
    fn other_type(&mut self, node: Node<'a>) -> PrintResult {
        match node {
            Node::Float { bits, suffix } => self.push_all(&["_Float", bits, suffix]),
            Node::BitInt { is_unsigned, bits } => {
                self.enclosed(if is_unsigned { "unsigned _BitInt(" } else { "_BitInt(" }, bits, ")")
            }
            Node::Vector { of, len } => {
                self.print(of)?;
                self.enclosed(" __vector(", len, ")")
            }
            Node::VendorQualified(of, name) => {
                self.left(of)?;
                self.push(" ")?;
                self.print(name)
            }
            Node::Suffixed(of, word) => {
                self.left(of)?;
                self.push(word)
            }
            Node::Decltype(expression) => self.enclosed("decltype (", expression, ")"),
            Node::Constrained(constraint, word) => self.enclosed("", constraint, word),
            _ => self.expression(node),
        }
    }

    pub fn type_right(&mut self, node: Node<'a>) -> PrintResult {
        match node {
            Node::Pointer(of) | Node::MemberPointer { member: of, .. } => self.pointer_right(of),
            Node::Reference { .. } => {
                let (of, _) = self.collapsed(node)?;
                self.pointer_right(of)
            }
            Node::Qualify(_, of) | Node::VendorQualified(of, _) | Node::Suffixed(of, _) => self.right(of),
            Node::Array { of, len } => {
                self.push(if self.text.ends_with(']') { "[" } else { " [" })?;
                if let Some(len) = len {
                    self.print(len)?;
                }
                self.push("]")?;
                self.right(of)
            }
            Node::FunctionType(function) => self.behind_name(&self.tree.function(function)),
            _ => Ok(()),
        }
    }

    pub fn returned_left(&mut self, returns: NodeId) -> PrintResult {
        self.left(returns)?;
        if self.has_right(returns)? { Ok(()) } else { self.push(" ") }
    }

    /// Writes a qualified type. Qualifiers that the type has already are not repeated.
    fn qualified_left(&mut self, qualifiers: Qualifiers, of: NodeId) -> PrintResult {
        self.left(of)?;
        let said = match self.tree.node(self.resolved(of)?) {
            Node::Qualify(said, _) => said,
            _ => Qualifiers::default(),
        };
        if self.behind(of)? == TypeSuffix::Function {
            return Ok(()); // functions have no qualifiers
        }
        self.qualifiers(Qualifiers {
            is_const: qualifiers.is_const && !said.is_const,
            is_volatile: qualifiers.is_volatile && !said.is_volatile,
            is_restrict: qualifiers.is_restrict && !said.is_restrict,
        })
    }

    fn pointer_left(&mut self, of: NodeId, sign: &str) -> PrintResult {
        self.left(of)?;
        self.open(of)?;
        self.push(sign)
    }

    fn member_pointer_left(&mut self, class: NodeId, member: NodeId) -> PrintResult {
        self.left(member)?;
        self.open(member)?;
        if !self.text.ends_with('(') {
            self.push(" ")?;
        }
        self.print(class)?;
        self.push("::*")
    }

    /// Opens parentheses, which a pointer to an array or function needs.
    fn open(&mut self, of: NodeId) -> PrintResult {
        match self.behind(of)? {
            TypeSuffix::Nothing => Ok(()),
            TypeSuffix::Array => self.push(" ("),
            TypeSuffix::Function if [' ', '(', '*'].iter().any(|&last| self.text.ends_with(last)) => self.push("("),
            TypeSuffix::Function => self.push(" ("),
        }
    }

    fn pointer_right(&mut self, of: NodeId) -> PrintResult {
        if self.behind(of)? != TypeSuffix::Nothing {
            self.push(")")?;
        }
        self.right(of)
    }

    /// Collapses references: `&` of `&` and `&&` of `&` are `&`.
    fn collapsed(&mut self, node: Node<'a>) -> Result<(NodeId, &'static str), PrintStop> {
        let Node::Reference { mut of, mut is_rvalue } = node else { return Err(PrintStop::Refused) };
        loop {
            self.step()?;
            match self.tree.node(self.resolved(of)?) {
                Node::Reference { of: inner, is_rvalue: is_inner_rvalue } => {
                    of = inner;
                    is_rvalue &= is_inner_rvalue;
                }
                _ => return Ok((of, if is_rvalue { "&&" } else { "&" })),
            }
        }
    }

    /// The node; for a template parameter, its argument.
    fn resolved(&mut self, mut id: NodeId) -> Result<NodeId, PrintStop> {
        while let Some(argument) = self.argument(id)? {
            id = argument;
        }
        Ok(id)
    }

    /// Whether a type itself, under its qualifiers, is an array or a function.
    fn behind(&mut self, mut id: NodeId) -> Result<TypeSuffix, PrintStop> {
        loop {
            self.step()?;
            id = match self.tree.node(self.resolved(id)?) {
                Node::Qualify(_, of) | Node::VendorQualified(of, _) => of,
                Node::Array { .. } => return Ok(TypeSuffix::Array),
                Node::FunctionType(_) => return Ok(TypeSuffix::Function),
                _ => return Ok(TypeSuffix::Nothing),
            }
        }
    }

    /// Whether a type has a right side, as a pointer to a function has.
    pub fn has_right(&mut self, mut id: NodeId) -> Result<bool, PrintStop> {
        loop {
            self.step()?;
            id = match self.tree.node(self.resolved(id)?) {
                Node::Pointer(of) | Node::Reference { of, .. } | Node::MemberPointer { member: of, .. } => of,
                Node::Qualify(_, of) | Node::VendorQualified(of, _) | Node::Suffixed(of, _) => of,
                Node::Array { .. } | Node::FunctionType(_) => return Ok(true),
                _ => return Ok(false),
            }
        }
    }

    fn expansion(&mut self, pattern: NodeId) -> PrintResult {
        let Some(pack) = self.pack_in(pattern)? else {
            self.operand(pattern)?;
            return self.push("...");
        };
        let outer = self.element;
        let written = self.separated(pack.len(), |printer, index| {
            printer.element = Some(index);
            printer.print(pattern)
        });
        self.element = outer;
        written
    }

    /// The pack over which a pattern is expanded.
    pub fn pack_in(&mut self, id: NodeId) -> Result<Option<NodeList>, PrintStop> {
        self.nest(|printer| {
            let tree = printer.tree;
            let (few, many) = match tree.node(id) {
                Node::Parameter { .. } => {
                    let argument = printer.whole_argument(id)?.map(|argument| tree.node(argument));
                    return Ok(if let Some(Node::Pack(list)) = argument { Some(list) } else { None });
                }
                node => children(node),
            };
            let function = match tree.node(id) {
                Node::FunctionType(place) | Node::Encoding { function: place, .. } => Some(tree.function(place)),
                _ => None,
            };
            let of_function = function.map(|function| (function.returns, function.parameters));
            let (returns, parameters) = of_function.unwrap_or_default();
            let lists = [many, parameters].into_iter().flat_map(|list| tree.items(list));
            for &child in few.iter().flatten().chain(&returns).chain(lists) {
                if let Some(pack) = printer.pack_in(child)? {
                    return Ok(Some(pack));
                }
            }
            Ok(None)
        })
    }
}

/// The children of a node that may contain a pack; not those of another expansion.
fn children(node: Node<'_>) -> ([Option<NodeId>; 3], NodeList) {
    let none = NodeList::default();
    let one = |id: NodeId| ([Some(id), None, None], none);
    let two = |left: NodeId, right: NodeId| ([Some(left), Some(right), None], none);
    match node {
        Node::Qualified(left, right) | Node::Cast(left, right) | Node::Binary(_, left, right) => two(left, right),
        Node::Template(name, list) | Node::Call(name, list) => ([Some(name), None, None], list),
        Node::Tagged(of, _) | Node::Conversion(of) | Node::Destructor(of) | Node::Constructor(of) => one(of),
        Node::Local(function, entity) => two(function, entity),
        Node::Encoding { name, .. } => one(name),
        Node::Qualify(_, of) | Node::Pointer(of) | Node::Reference { of, .. } | Node::Suffixed(of, _) => one(of),
        Node::MemberPointer { class, member } => two(class, member),
        Node::Array { of, len } => ([Some(of), len, None], none),
        Node::Vector { of, len } => two(of, len),
        Node::VendorQualified(of, name) => two(of, name),
        Node::Decltype(of) | Node::Unary(_, of) | Node::Postfix(_, of) | Node::Global(of) => one(of),
        Node::Choice(first, second, third) => ([Some(first), Some(second), Some(third)], none),
        Node::Parenthesized(list) | Node::Pack(list) | Node::VendorCall(_, list) => ([None; 3], list),
        Node::Braced(of, list) => ([of, None, None], list),
        Node::New { placement, of, with, .. } => ([Some(of), with, None], placement),
        Node::Fold { left, right, .. } => ([left, right, None], none),
        Node::DestructorName(of) => one(of),
        Node::Designated { value, .. } => one(value),
        Node::Special(_, of) | Node::Literal { of, .. } => one(of),
        _ => ([None; 3], none),
    }
}
