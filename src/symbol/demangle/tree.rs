//! Syntax tree of a mangled name: nodes in one array, which refer to each other by index.

use std::num::NonZeroU32;

use super::tables::{Builtin, Operator, Standard};

/// Index of a node, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(NonZeroU32);

/// A list of nodes, such as `<int, char>`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeList {
    start: u32,
    len: u32,
}

impl NodeList {
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

/// The function whose template arguments `T_` refers to. `T_` may be read before these arguments are known.
#[derive(Clone, Copy, Debug)]
pub struct TemplateScope(u32);

/// A function without its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct FunctionNode {
    pub returns: Option<NodeId>,
    pub parameters: NodeList,
    pub qualifiers: Qualifiers,
    /// Reference qualifier: `&`, `&&` or empty.
    pub reference: &'static str,
    /// Exception specification.
    pub exceptions: Option<Exceptions>,
    pub is_transaction_safe: bool,
    pub requires: Option<NodeId>,
    /// The first parameter is an explicit object parameter (`this`).
    pub has_explicit_object: bool,
}

/// Exception specification of a function.
#[derive(Clone, Copy, Debug)]
pub enum Exceptions {
    /// `noexcept`
    None,
    /// `noexcept(CONDITION)`
    NoneIf(NodeId),
    /// `throw(TYPES)`
    Some(NodeList),
}

/// Kind of a template parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    Type,
    Value,
    Template,
}

/// A node. The grammar in `names.rs`, `types.rs` and `expressions.rs` tells the origin of each.
#[derive(Clone, Copy, Debug)]
pub enum Node<'a> {
    // Names
    Name(&'a str),
    Standard(&'static Standard),
    Qualified(NodeId, NodeId),
    Template(NodeId, NodeList),
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
        heads: NodeList,
        parameters: NodeList,
        number: u32,
    },
    Unnamed(u32),
    Block(u32),
    Friend(NodeId),
    Binding(NodeList),
    Local(NodeId, NodeId),
    StringLiteral,
    DefaultArgument(u32),
    /// A function: name, and index of its [`FunctionNode`].
    Encoding {
        name: NodeId,
        function: u32,
        scope: TemplateScope,
    },
    /// A prefix such as `vtable for `, and the entity.
    Special(&'static str, NodeId),
    ConstructionTable {
        of: NodeId,
        within: NodeId,
    },
    Temporary(NodeId, u32),
    Clone(NodeId, &'a str),

    // Types
    Builtin(&'static Builtin),
    /// A builtin type without literals.
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
    /// A type and a word behind it, such as ` _Complex`.
    Suffixed(NodeId, &'static str),
    Parameter {
        scope: TemplateScope,
        index: u32,
    },
    /// A template parameter in the head of a lambda, `typename $T0`.
    Head {
        kind: ParameterKind,
        index: u32,
        detail: NodeList,
        is_pack: bool,
    },
    Pack(NodeList),
    Expansion(NodeId),
    Decltype(NodeId),
    Constrained(NodeId, &'static str),

    // Expressions
    Unary(&'static Operator, NodeId),
    Postfix(&'static Operator, NodeId),
    Binary(&'static Operator, NodeId, NodeId),
    Choice(NodeId, NodeId, NodeId),
    Call(NodeId, NodeList),
    Cast(NodeId, NodeId),
    Parenthesized(NodeList),
    Braced(Option<NodeId>, NodeList),
    /// `new (placement) of with`; `with` is the initializer.
    New {
        operator: &'static Operator,
        placement: NodeList,
        of: NodeId,
        with: Option<NodeId>,
    },
    Global(NodeId),
    SizeofPack(NodeId),
    SizeofArguments(NodeList),
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
    VendorCall(&'a str, NodeList),
    Requires {
        parameters: NodeList,
        requirements: NodeList,
    },
    /// A requirement of a requires-expression. `constraint`: what the type must satisfy.
    Requirement {
        expression: NodeId,
        is_noexcept: bool,
        constraint: Option<NodeId>,
    },
    TypeRequirement(NodeId),
    NestedRequirement(NodeId),
}

/// The nodes, lists and functions of a name.
#[derive(Debug, Default)]
pub struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    items: Vec<NodeId>,
    functions: Vec<FunctionNode>,
    scopes: Vec<Option<NodeList>>,
}

impl<'a> Tree<'a> {
    /// An empty tree for a name of `bytes`.
    pub fn with_capacity(bytes: usize) -> Tree<'a> {
        let few = bytes.min(256);
        let (nodes, items) = (Vec::with_capacity(few), Vec::with_capacity(few / 2));
        Tree { nodes, items, functions: Vec::with_capacity(4), scopes: Vec::with_capacity(4) }
    }

    /// Adds a node. None when there are more than 2^32.
    pub fn add(&mut self, node: Node<'a>) -> Option<NodeId> {
        self.nodes.push(node);
        Some(NodeId(NonZeroU32::new(u32::try_from(self.nodes.len()).ok()?)?))
    }

    pub fn node(&self, id: NodeId) -> Node<'a> {
        self.nodes[id.0.get() as usize - 1]
    }

    pub fn list(&mut self, items: impl Iterator<Item = NodeId>) -> Option<NodeList> {
        let start = self.items.len();
        self.items.extend(items);
        Some(NodeList { start: u32::try_from(start).ok()?, len: u32::try_from(self.items.len() - start).ok()? })
    }

    pub fn item(&self, list: NodeList, index: usize) -> Option<NodeId> {
        (index < list.len()).then(|| self.items[list.start as usize + index])
    }

    pub fn items(&self, list: NodeList) -> &[NodeId] {
        &self.items[list.start as usize..][..list.len()]
    }

    pub fn add_function(&mut self, function: FunctionNode) -> Option<u32> {
        self.functions.push(function);
        u32::try_from(self.functions.len() - 1).ok()
    }

    pub fn function(&self, place: u32) -> FunctionNode {
        self.functions[place as usize]
    }

    pub fn add_scope(&mut self) -> TemplateScope {
        self.scopes.push(None);
        TemplateScope(u32::try_from(self.scopes.len() - 1).unwrap_or_default())
    }

    pub fn set_arguments(&mut self, scope: TemplateScope, arguments: NodeList) {
        self.scopes[scope.0 as usize] = Some(arguments);
    }

    pub fn arguments(&self, scope: TemplateScope) -> Option<NodeList> {
        self.scopes[scope.0 as usize]
    }
}
