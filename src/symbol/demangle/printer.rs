//! Writes what a tree stands for in the manner of c++filt: names, functions and lists. Types and expressions are in
//! `print_types.rs` and `print_expressions.rs`.
//!
//! A declarator has two sides: of `void (*f(int))(char)`, the type of `f` is written before and behind it.

use super::text::Text;
use super::tree::{Exceptions, Function, List, Node, NodeId, ParameterKind, Qualifiers, Tree};

/// Of nodes that are written. A name of 4,096 bytes takes a few thousand.
const MOST_STEPS: u32 = 100_000;
/// Of nodes within each other. All of them take 400 KiB of stack, unoptimized.
const MOST_NESTED: u32 = 192;

/// Why writing ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// What was written is the beginning of a longer text.
    Full,
    /// The name means nothing, or too much.
    Refused,
}

pub type Written = Result<(), Stop>;

pub struct Printer<'t, 'a> {
    pub tree: &'t Tree<'a>,
    pub text: Text,
    steps: u32,
    nested: u32,
    /// Which element of each pack is being written; all of them, where there is none.
    pub element: Option<usize>,
    /// The arguments of the function that is being written.
    scope: Option<List>,
    /// What the lambda declares whose signature is being written.
    pub heads: Option<List>,
    /// Functions are written without their parameters, results and tags.
    pub is_brief: bool,
}

impl<'t, 'a> Printer<'t, 'a> {
    pub fn new(tree: &'t Tree<'a>) -> Printer<'t, 'a> {
        let (text, element) = (Text::default(), Some(0));
        Printer { tree, text, steps: 0, nested: 0, element, scope: None, heads: None, is_brief: false }
    }

    pub fn step(&mut self) -> Written {
        self.steps += 1;
        if self.steps > MOST_STEPS { Err(Stop::Refused) } else { Ok(()) }
    }

    pub fn push(&mut self, text: &str) -> Written {
        if self.text.push(text) { Ok(()) } else { Err(Stop::Full) }
    }

    pub fn push_number(&mut self, number: u64) -> Written {
        self.push(&number.to_string())
    }

    /// Both sides of a node.
    pub fn print(&mut self, id: NodeId) -> Written {
        self.left(id)?;
        self.right(id)
    }

    /// What stands before a name that is declared with this type; all of any other node.
    pub fn left(&mut self, id: NodeId) -> Written {
        self.nest(|printer| match printer.tree.node(id) {
            Node::Name(text) => printer.push(text),
            Node::Builtin(builtin) => printer.push(builtin.text),
            Node::Qualified(scope, name) => printer.qualified(scope, name),
            Node::Template(name, arguments) => printer.template(name, arguments),
            Node::Parameter { index, .. } => match printer.argument(id)? {
                Some(argument) => printer.left(argument),
                None => printer.parameter_of_lambda(index),
            },
            node => printer.name(node),
        })
    }

    /// What stands behind it.
    pub fn right(&mut self, id: NodeId) -> Written {
        self.nest(|printer| match printer.tree.node(id) {
            Node::Parameter { .. } => match printer.argument(id)? {
                Some(argument) => printer.right(argument),
                None => Ok(()),
            },
            node => printer.type_right(node),
        })
    }

    /// One level deeper. It fails when that is too deep.
    pub fn nest<T>(&mut self, write: impl FnOnce(&mut Self) -> Result<T, Stop>) -> Result<T, Stop> {
        self.step()?;
        if self.nested >= MOST_NESTED {
            return Err(Stop::Refused);
        }
        self.nested += 1;
        let written = write(self);
        self.nested -= 1;
        written
    }

    fn qualified(&mut self, scope: NodeId, name: NodeId) -> Written {
        self.print(scope)?;
        self.push("::")?;
        self.print(name)
    }

    fn template(&mut self, name: NodeId, arguments: List) -> Written {
        self.print(name)?;
        self.arguments(arguments)
    }

    fn arguments(&mut self, arguments: List) -> Written {
        if self.text.ends_with('<') {
            self.push(" ")?;
        }
        self.push("<")?;
        self.list(arguments)?;
        if self.text.ends_with('>') {
            self.push(" ")?;
        }
        self.push(">")
    }

    /// Items with commas between those that are not empty.
    pub fn list(&mut self, list: List) -> Written {
        let tree = self.tree;
        self.separated(tree.items(list).len(), |printer, at| printer.print(tree.items(list)[at]))
    }

    pub fn separated(&mut self, count: usize, mut item: impl FnMut(&mut Self, usize) -> Written) -> Written {
        let mut is_first = true;
        for at in 0..count {
            self.step()?;
            let before = self.text.len();
            if !is_first {
                self.push(", ")?;
            }
            let start = self.text.len();
            item(self, at)?;
            if self.text.len() == start {
                self.text.truncate(before);
            } else {
                is_first = false;
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn name(&mut self, node: Node<'a>) -> Written {
        match node {
            Node::Standard(standard) => self.push(standard.text),
            Node::Tagged(name, _) if self.is_brief => self.print(name),
            Node::Tagged(name, tag) => {
                self.print(name)?;
                self.push("[abi:")?;
                self.push(tag)?;
                self.push("]")
            }
            Node::OfModule(name, module) => {
                self.print(name)?;
                self.push("@")?;
                self.print(module)
            }
            Node::Module { of, name, is_partition } => self.module(of, name, is_partition),
            Node::OperatorName(operator) => {
                self.push("operator")?;
                if operator.text.starts_with(|first: char| first.is_ascii_lowercase()) {
                    self.push(" ")?;
                }
                self.push(operator.text)
            }
            Node::VendorOperator(name) => {
                self.push("operator ")?;
                self.push(name)
            }
            Node::LiteralOperator(name) => {
                self.push("operator\"\" ")?;
                self.push(name)
            }
            Node::Conversion(to) => {
                self.push("operator ")?;
                self.print(to)
            }
            Node::Constructor(of) => self.last_name(of),
            Node::Destructor(of) => {
                self.push("~")?;
                self.last_name(of)
            }
            Node::Lambda { heads, parameters, number } => self.lambda(heads, parameters, number),
            Node::Unnamed(number) => self.numbered("{unnamed type#", number),
            Node::Block(number) => self.numbered("{block literal#", number),
            Node::DefaultArgument(number) => self.numbered("{default arg#", number),
            Node::Friend(name) => {
                self.push("friend ")?;
                self.print(name)
            }
            Node::Binding(names) => {
                self.push("[")?;
                self.list(names)?;
                self.push("]")
            }
            Node::StringLiteral => self.push("string literal"),
            Node::Local(function, entity) => self.local(function, entity),
            Node::Encoding { .. } => self.encoding(node, false),
            Node::Special(words, of) => {
                self.push(words)?;
                self.print(of)
            }
            Node::ConstructionTable { of, within } => {
                self.push("construction vtable for ")?;
                self.print(of)?;
                self.push("-in-")?;
                self.print(within)
            }
            Node::Temporary(name, number) => {
                self.push("reference temporary #")?;
                self.push_number(number.into())?;
                self.push(" for ")?;
                self.print(name)
            }
            Node::Clone(of, suffix) => {
                self.print(of)?;
                self.push(" [clone ")?;
                self.push(suffix)?;
                self.push("]")
            }
            Node::Head { .. } => self.head(node),
            _ => self.type_left(node),
        }
    }

    fn numbered(&mut self, words: &str, number: u32) -> Written {
        self.push(words)?;
        self.push_number(u64::from(number) + 1)?;
        self.push("}")
    }

    fn module(&mut self, of: Option<NodeId>, name: &str, is_partition: bool) -> Written {
        if let Some(of) = of {
            self.print(of)?;
        }
        match (is_partition, of) {
            (true, _) => self.push(":")?,
            (false, Some(_)) => self.push(".")?,
            (false, None) => {}
        }
        self.push(name)
    }

    /// A class as its constructors call it.
    fn last_name(&mut self, of: NodeId) -> Written {
        let mut id = of;
        loop {
            self.step()?;
            id = match self.tree.node(id) {
                Node::Qualified(_, name) | Node::Local(_, name) => name,
                Node::Template(name, _) | Node::Tagged(name, _) | Node::OfModule(name, _) => name,
                Node::Standard(standard) => return self.push(standard.last),
                Node::Parameter { .. } => match self.argument(id)? {
                    Some(argument) => argument,
                    None => return self.print(id),
                },
                _ => return self.print(id),
            }
        }
    }

    fn lambda(&mut self, heads: List, parameters: List, number: u32) -> Written {
        self.push("{lambda")?;
        let outer = self.heads.replace(heads);
        if !heads.is_empty() {
            self.arguments(heads)?;
        }
        self.push("(")?;
        self.list(parameters)?;
        self.push(")#")?;
        self.heads = outer;
        self.push_number(u64::from(number) + 1)?;
        self.push("}")
    }

    /// `typename $T0`, `int $N0`, `template<typename> class $TT0`
    fn head(&mut self, node: Node<'a>) -> Written {
        let Node::Head { kind, index, detail, is_pack } = node else { return Err(Stop::Refused) };
        match kind {
            ParameterKind::Type if detail.is_empty() => self.push("typename")?,
            ParameterKind::Type | ParameterKind::Value => self.list(detail)?,
            ParameterKind::Template => {
                self.push("template<")?;
                self.list(detail)?;
                self.push("> class")?;
            }
        }
        self.push(if is_pack { "... " } else { " " })?;
        self.parameter_name(kind, index)
    }

    /// `auto:1`, or as the head names it.
    fn parameter_of_lambda(&mut self, index: u32) -> Written {
        let head = self.heads.and_then(|heads| self.tree.item(heads, index as usize));
        match head.map(|head| self.tree.node(head)) {
            Some(Node::Head { kind, index, .. }) => self.parameter_name(kind, index),
            _ => {
                self.push("auto:")?;
                self.push_number(u64::from(index) + 1)
            }
        }
    }

    fn parameter_name(&mut self, kind: ParameterKind, index: u32) -> Written {
        self.push(match kind {
            ParameterKind::Type => "$T",
            ParameterKind::Value => "$N",
            ParameterKind::Template => "$TT",
        })?;
        self.push_number(index.into())
    }

    /// A function. What is within another says nothing of what that one returns.
    fn encoding(&mut self, node: Node<'a>, is_scope: bool) -> Written {
        let Node::Encoding { name, function, scope } = node else { return Err(Stop::Refused) };
        let mut function = self.tree.function(function);
        let outer = (std::mem::replace(&mut self.scope, self.tree.arguments(scope)), self.heads.take());
        if is_scope || self.is_brief {
            function.returns = None;
        }
        if let Some(returns) = function.returns {
            self.returned_left(returns)?;
        }
        self.print(name)?;
        if !self.is_brief {
            self.behind_name(&function)?;
        }
        (self.scope, self.heads) = outer;
        Ok(())
    }

    fn local(&mut self, function: NodeId, entity: NodeId) -> Written {
        match self.tree.node(function) {
            node @ Node::Encoding { .. } => self.encoding(node, true)?,
            _ => self.print(function)?,
        }
        self.push("::")?;
        self.print(entity)
    }

    /// The parameters, and what follows them.
    pub fn behind_name(&mut self, function: &Function) -> Written {
        self.push("(")?;
        if function.has_explicit_object {
            self.push("this ")?;
        }
        self.list(function.parameters)?;
        self.push(")")?;
        self.qualifiers(function.qualifiers)?;
        if !function.reference.is_empty() {
            self.push(" ")?;
            self.push(function.reference)?;
        }
        if let Some(exceptions) = function.exceptions {
            self.exceptions(exceptions)?;
        }
        if function.is_transaction_safe {
            self.push(" transaction_safe")?;
        }
        if let Some(returns) = function.returns {
            self.right(returns)?;
        }
        match function.requires {
            Some(condition) => {
                self.push(" requires ")?;
                self.print(condition)
            }
            None => Ok(()),
        }
    }

    pub fn qualifiers(&mut self, qualifiers: Qualifiers) -> Written {
        let words = [
            (qualifiers.is_const, " const"),
            (qualifiers.is_volatile, " volatile"),
            (qualifiers.is_restrict, " restrict"),
        ];
        words.into_iter().filter(|(is_set, _)| *is_set).try_for_each(|(_, word)| self.push(word))
    }

    fn exceptions(&mut self, exceptions: Exceptions) -> Written {
        match exceptions {
            Exceptions::None => self.push(" noexcept"),
            Exceptions::NoneIf(condition) => {
                self.push(" noexcept(")?;
                self.print(condition)?;
                self.push(")")
            }
            Exceptions::Some(types) => {
                self.push(" throw(")?;
                self.list(types)?;
                self.push(")")
            }
        }
    }

    /// The element of a pack, or the argument, that a parameter of a template stands for. None for one of the lambda whose
    /// signature is being written.
    pub fn argument(&mut self, id: NodeId) -> Result<Option<NodeId>, Stop> {
        let argument = self.whole_argument(id)?;
        let element = match (argument.map(|argument| self.tree.node(argument)), self.element) {
            (Some(Node::Pack(list)), Some(element)) => self.tree.item(list, element),
            _ => None,
        };
        Ok(element.or(argument))
    }

    /// A back-reference means what `T_` means where it stands, not where it was first: arguments are those of the function
    /// that is being written.
    pub fn whole_argument(&mut self, id: NodeId) -> Result<Option<NodeId>, Stop> {
        self.step()?;
        let Node::Parameter { scope, index } = self.tree.node(id) else { return Ok(None) };
        if self.heads.is_some() {
            return Ok(None);
        }
        let scopes = [self.scope, self.tree.arguments(scope)];
        let mut arguments = scopes.into_iter().flatten().filter_map(|list| self.tree.item(list, index as usize));
        arguments.next().ok_or(Stop::Refused).map(Some)
    }
}
