//! What a mangled name stands for: nodes in one list, which know each other by their places in it.

use std::num::NonZeroU32;

use super::tables::{Builtin, Operator, Standard};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(NonZeroU32);

/// Nodes one after the other, `<int, char>`.
#[derive(Clone, Copy, Debug, Default)]
pub struct List {
    start: u32,
    len: u32,
}

impl List {
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    pub fn len(self) -> usize {
        self.len as usize
    }
}

/// `const`, `volatile`, `restrict`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Qualifiers {
    pub is_const: bool,
    pub is_volatile: bool,
    pub is_restrict: bool,
}

impl Qualifiers {
    pub fn is_empty(self) -> bool {
        self == Qualifiers::default()
    }
}

/// A function whose arguments `T_` stands for. They are known when its name is read, and `T_` may come before that.
#[derive(Clone, Copy, Debug)]
pub struct Scope(u32);

/// Everything of a function but its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Function {
    pub returns: Option<NodeId>,
    pub parameters: List,
    pub qualifiers: Qualifiers,
    /// `&`, `&&` behind the parameters.
    pub reference: &'static str,
    /// ` noexcept`, ` throw(int)`, with its operands.
    pub exceptions: Option<Exceptions>,
    pub is_transaction_safe: bool,
    pub requires: Option<NodeId>,
    /// The first parameter is the object.
    pub has_explicit_object: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Exceptions {
    None,
    NoneIf(NodeId),
    Some(List),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    Type,
    Value,
    Template,
}

/// See the grammar of `names.rs`, `types.rs` and `expressions.rs` for what each comes from.
#[derive(Clone, Copy, Debug)]
pub enum Node<'a> {
    // Names
    Name(&'a str),
    Standard(&'static Standard),
    Qualified(NodeId, NodeId),
    Template(NodeId, List),
    Tagged(NodeId, &'a str),
    /// `name@Module`
    OfModule(NodeId, NodeId),
    Module {
        of: Option<NodeId>,
        name: &'a str,
        is_partition: bool,
    },
    OperatorName(&'static Operator),
    VendorOperator(&'a str),
    LiteralOperator(&'a str),
    Conversion(NodeId),
    Constructor(NodeId),
    Destructor(NodeId),
    Lambda {
        heads: List,
        parameters: List,
        number: u32,
    },
    Unnamed(u32),
    Block(u32),
    Friend(NodeId),
    Binding(List),
    Local(NodeId, NodeId),
    StringLiteral,
    DefaultArgument(u32),
    /// Its name, and the place of its [`Function`].
    Encoding {
        name: NodeId,
        function: u32,
        scope: Scope,
    },
    /// Words in front, as of `vtable for `.
    Special(&'static str, NodeId),
    ConstructionTable {
        of: NodeId,
        within: NodeId,
    },
    Temporary(NodeId, u32),
    Clone(NodeId, &'a str),

    // Types
    Builtin(&'static Builtin),
    /// One that has no literals of its own.
    Plain(&'static str),
    Float {
        bits: &'a str,
        suffix: &'a str,
    },
    BitInt {
        is_unsigned: bool,
        bits: NodeId,
    },
    Qualify(Qualifiers, NodeId),
    Pointer(NodeId),
    Reference {
        of: NodeId,
        is_rvalue: bool,
    },
    MemberPointer {
        class: NodeId,
        member: NodeId,
    },
    Array {
        of: NodeId,
        len: Option<NodeId>,
    },
    FunctionType(u32),
    Vector {
        of: NodeId,
        len: NodeId,
    },
    VendorQualified(NodeId, NodeId),
    /// A word behind the type, as ` _Complex`.
    Suffixed(NodeId, &'static str),
    Parameter {
        scope: Scope,
        index: u32,
    },
    /// `typename $T0`: how the head of a lambda names it.
    Head {
        kind: ParameterKind,
        index: u32,
        detail: List,
        is_pack: bool,
    },
    Pack(List),
    Expansion(NodeId),
    Decltype(NodeId),
    Constrained(NodeId, &'static str),

    // Expressions
    Unary(&'static Operator, NodeId),
    Postfix(&'static Operator, NodeId),
    Binary(&'static Operator, NodeId, NodeId),
    Choice(NodeId, NodeId, NodeId),
    Call(NodeId, List),
    Cast(NodeId, NodeId),
    Parenthesized(List),
    Braced(Option<NodeId>, List),
    /// Its type, and the initializer.
    New {
        operator: &'static Operator,
        placement: List,
        of: NodeId,
        with: Option<NodeId>,
    },
    Global(NodeId),
    SizeofPack(NodeId),
    SizeofArguments(List),
    Fold {
        operator: &'static Operator,
        left: Option<NodeId>,
        right: Option<NodeId>,
    },
    FunctionParameter(u32),
    Word(&'static str),
    Literal {
        of: NodeId,
        is_negative: bool,
        value: &'a str,
    },
    DestructorName(NodeId),
    Designated {
        place: NodeId,
        value: NodeId,
        is_index: bool,
    },
    DesignatedRange(NodeId, NodeId, NodeId),
    VendorCall(&'a str, List),
    Requires {
        parameters: List,
        requirements: List,
    },
    /// One of a requires-expression: with `noexcept`, and with what its type must satisfy.
    Requirement {
        expression: NodeId,
        is_noexcept: bool,
        constraint: Option<NodeId>,
    },
    TypeRequirement(NodeId),
    NestedRequirement(NodeId),
}

#[derive(Debug, Default)]
pub struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    items: Vec<NodeId>,
    functions: Vec<Function>,
    scopes: Vec<Option<List>>,
}

impl<'a> Tree<'a> {
    /// For a name of so many bytes.
    pub fn with_capacity(bytes: usize) -> Tree<'a> {
        let few = bytes.min(256);
        let (nodes, items) = (Vec::with_capacity(few), Vec::with_capacity(few / 2));
        Tree { nodes, items, functions: Vec::with_capacity(4), scopes: Vec::with_capacity(4) }
    }

    /// None of more nodes than numbers.
    pub fn add(&mut self, node: Node<'a>) -> Option<NodeId> {
        self.nodes.push(node);
        Some(NodeId(NonZeroU32::new(u32::try_from(self.nodes.len()).ok()?)?))
    }

    pub fn node(&self, id: NodeId) -> Node<'a> {
        self.nodes[id.0.get() as usize - 1]
    }

    pub fn list(&mut self, items: impl Iterator<Item = NodeId>) -> Option<List> {
        let start = self.items.len();
        self.items.extend(items);
        Some(List { start: u32::try_from(start).ok()?, len: u32::try_from(self.items.len() - start).ok()? })
    }

    pub fn item(&self, list: List, index: usize) -> Option<NodeId> {
        (index < list.len()).then(|| self.items[list.start as usize + index])
    }

    pub fn items(&self, list: List) -> &[NodeId] {
        &self.items[list.start as usize..][..list.len()]
    }

    pub fn add_function(&mut self, function: Function) -> Option<u32> {
        self.functions.push(function);
        u32::try_from(self.functions.len() - 1).ok()
    }

    pub fn function(&self, place: u32) -> Function {
        self.functions[place as usize]
    }

    pub fn add_scope(&mut self) -> Scope {
        self.scopes.push(None);
        Scope(u32::try_from(self.scopes.len() - 1).unwrap_or_default())
    }

    pub fn set_arguments(&mut self, scope: Scope, arguments: List) {
        self.scopes[scope.0 as usize] = Some(arguments);
    }

    pub fn arguments(&self, scope: Scope) -> Option<List> {
        self.scopes[scope.0 as usize]
    }
}
