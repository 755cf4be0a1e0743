//! Writes a tree in the format of c++filt: names, functions and lists. Types and expressions are in `print_types.rs`
//! and `print_expressions.rs`.
//!
//! A declarator has two sides: in `void (*f(int))(char)`, the type of `f` is written to the left and right of it.

use super::text::BoundedText;
use super::tree::{Exceptions, FunctionNode, Node, NodeId, NodeList, ParameterKind, Qualifiers, Tree};

/// Most nodes written per name. A name of 4,096 bytes takes a few thousand.
const MAX_STEPS: u32 = 100_000;
/// Deepest nesting of nodes. The maximum takes 400 KiB of stack, unoptimized.
const MAX_NESTED: u32 = 192;

/// Why a name was not written to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrintStop {
    /// The text was cut at its limit.
    Full,
    /// The name is malformed, or exceeds a bound.
    Refused,
}

pub type PrintResult = Result<(), PrintStop>;

/// State of the printer.
pub struct Printer<'t, 'a> {
    pub tree: &'t Tree<'a>,
    pub text: BoundedText,
    steps: u32,
    nested: u32,
    /// Index of the element that is written of each pack; None for all elements.
    pub element: Option<usize>,
    /// Template arguments of the function that is being written.
    scope: Option<NodeList>,
    /// Template parameters of the lambda whose signature is being written.
    pub heads: Option<NodeList>,
    /// Writes functions without parameters, results and ABI tags.
    pub is_brief: bool,
}

impl<'t, 'a> Printer<'t, 'a> {
    pub fn new(tree: &'t Tree<'a>) -> Printer<'t, 'a> {
        let (text, element) = (BoundedText::default(), Some(0));
        Printer { tree, text, steps: 0, nested: 0, element, scope: None, heads: None, is_brief: false }
    }

    pub fn step(&mut self) -> PrintResult {
        self.steps += 1;
        if self.steps > MAX_STEPS { Err(PrintStop::Refused) } else { Ok(()) }
    }

    pub fn push(&mut self, text: &str) -> PrintResult {
        if self.text.push(text) { Ok(()) } else { Err(PrintStop::Full) }
    }

    pub fn push_all(&mut self, texts: &[&str]) -> PrintResult {
        texts.iter().try_for_each(|text| self.push(text))
    }

    pub fn push_number(&mut self, number: u64) -> PrintResult {
        self.push(&number.to_string())
    }

    /// Writes both sides of a node.
    pub fn print(&mut self, id: NodeId) -> PrintResult {
        self.left(id)?;
        self.right(id)
    }

    /// Writes the left side of a type; all of any other node.
    pub fn left(&mut self, id: NodeId) -> PrintResult {
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

    /// Writes the right side of a type.
    pub fn right(&mut self, id: NodeId) -> PrintResult {
        self.nest(|printer| match printer.tree.node(id) {
            Node::Parameter { .. } => match printer.argument(id)? {
                Some(argument) => printer.right(argument),
                None => Ok(()),
            },
            node => printer.type_right(node),
        })
    }

    /// Writes one level deeper. Fails when that is too deep.
    pub fn nest<T>(&mut self, write: impl FnOnce(&mut Self) -> Result<T, PrintStop>) -> Result<T, PrintStop> {
        self.step()?;
        if self.nested >= MAX_NESTED {
            return Err(PrintStop::Refused);
        }
        self.nested += 1;
        let written = write(self);
        self.nested -= 1;
        written
    }

    fn qualified(&mut self, scope: NodeId, name: NodeId) -> PrintResult {
        self.print(scope)?;
        self.push("::")?;
        self.print(name)
    }

    fn template(&mut self, name: NodeId, arguments: NodeList) -> PrintResult {
        self.print(name)?;
        self.arguments(arguments)
    }

    fn arguments(&mut self, arguments: NodeList) -> PrintResult {
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

    /// Writes a node between two texts.
    pub fn enclosed(&mut self, before: &str, id: NodeId, behind: &str) -> PrintResult {
        self.push(before)?;
        self.print(id)?;
        self.push(behind)
    }

    /// Writes a list between two texts.
    pub fn enclosed_list(&mut self, before: &str, list: NodeList, behind: &str) -> PrintResult {
        self.push(before)?;
        self.list(list)?;
        self.push(behind)
    }

    /// Writes items, with commas between those that are not empty.
    pub fn list(&mut self, list: NodeList) -> PrintResult {
        let tree = self.tree;
        self.separated(tree.items(list).len(), |printer, index| printer.print(tree.items(list)[index]))
    }

    pub fn separated(&mut self, count: usize, mut item: impl FnMut(&mut Self, usize) -> PrintResult) -> PrintResult {
        let mut is_first = true;
        for index in 0..count {
            self.step()?;
            let before = self.text.len();
            if !is_first {
                self.push(", ")?;
            }
            let start = self.text.len();
            item(self, index)?;
            if self.text.len() == start {
                self.text.truncate(before);
            } else {
                is_first = false;
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn name(&mut self, node: Node<'a>) -> PrintResult {
        match node {
            Node::Standard(standard) => self.push(standard.text),
            Node::Tagged(name, _) if self.is_brief => self.print(name),
            Node::Tagged(name, tag) => {
                self.print(name)?;
                self.push_all(&["[abi:", tag, "]"])
            }
            Node::OfModule(name, module) => {
                self.print(name)?;
                self.push("@")?;
                self.print(module)
            }
            Node::Module { of, name, is_partition } => self.module(of, name, is_partition),
            Node::OperatorName(operator) => self.operator_name(operator.text),
            Node::VendorOperator(name) => self.push_all(&["operator ", name]),
            Node::LiteralOperator(name) => self.push_all(&["operator\"\" ", name]),
            Node::Conversion(to) => self.enclosed("operator ", to, ""),
            Node::Constructor(of) => self.last_name(of),
            Node::Destructor(of) => {
                self.push("~")?;
                self.last_name(of)
            }
            Node::Lambda { heads, parameters, number } => self.lambda(heads, parameters, number),
            Node::Unnamed(number) => self.numbered("{unnamed type#", number),
            Node::Block(number) => self.numbered("{block literal#", number),
            Node::DefaultArgument(number) => self.numbered("{default arg#", number),
            Node::Friend(name) => self.enclosed("friend ", name, ""),
            Node::Binding(names) => self.enclosed_list("[", names, "]"),
            Node::StringLiteral => self.push("string literal"),
            Node::Local(function, entity) => self.local(function, entity),
            Node::Encoding { .. } => self.encoding(node, false),
            Node::Special(words, of) => self.enclosed(words, of, ""),
            Node::ConstructionTable { of, within } => {
                self.enclosed("construction vtable for ", of, "-in-")?;
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
                self.push_all(&[" [clone ", suffix, "]"])
            }
            Node::Head { .. } => self.head(node),
            _ => self.type_left(node),
        }
    }

    fn operator_name(&mut self, operator: &str) -> PrintResult {
        self.push("operator")?;
        if operator.starts_with(|first: char| first.is_ascii_lowercase()) {
            self.push(" ")?;
        }
        self.push(operator)
    }

    fn numbered(&mut self, words: &str, number: u32) -> PrintResult {
        self.push(words)?;
        self.push_number(u64::from(number) + 1)?;
        self.push("}")
    }

    fn module(&mut self, of: Option<NodeId>, name: &str, is_partition: bool) -> PrintResult {
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

    /// Writes the name of a class without scope and arguments, as for its constructors.
    fn last_name(&mut self, of: NodeId) -> PrintResult {
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

    fn lambda(&mut self, heads: NodeList, parameters: NodeList, number: u32) -> PrintResult {
        self.push("{lambda")?;
        let outer = self.heads.replace(heads);
        if !heads.is_empty() {
            self.arguments(heads)?;
        }
        self.enclosed_list("(", parameters, ")#")?;
        self.heads = outer;
        self.push_number(u64::from(number) + 1)?;
        self.push("}")
    }

    /// `typename $T0`, `int $N0`, `template<typename> class $TT0`
    fn head(&mut self, node: Node<'a>) -> PrintResult {
        let Node::Head { kind, index, detail, is_pack } = node else { return Err(PrintStop::Refused) };
        match kind {
            ParameterKind::Type if detail.is_empty() => self.push("typename")?,
            ParameterKind::Type | ParameterKind::Value => self.list(detail)?,
            ParameterKind::Template => {
                self.enclosed_list("template<", detail, "> class")?;
            }
        }
        self.push(if is_pack { "... " } else { " " })?;
        self.parameter_name(kind, index)
    }

    /// Writes a parameter of a lambda: `auto:1`, or its name in the head.
    fn parameter_of_lambda(&mut self, index: u32) -> PrintResult {
        let head = self.heads.and_then(|heads| self.tree.item(heads, index as usize));
        match head.map(|head| self.tree.node(head)) {
            Some(Node::Head { kind, index, .. }) => self.parameter_name(kind, index),
            _ => {
                self.push("auto:")?;
                self.push_number(u64::from(index) + 1)
            }
        }
    }

    fn parameter_name(&mut self, kind: ParameterKind, index: u32) -> PrintResult {
        self.push(match kind {
            ParameterKind::Type => "$T",
            ParameterKind::Value => "$N",
            ParameterKind::Template => "$TT",
        })?;
        self.push_number(index.into())
    }

    /// Writes a function. As a scope of a local entity, it is written without its result.
    fn encoding(&mut self, node: Node<'a>, is_scope: bool) -> PrintResult {
        let Node::Encoding { name, function, scope } = node else { return Err(PrintStop::Refused) };
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

    fn local(&mut self, function: NodeId, entity: NodeId) -> PrintResult {
        match self.tree.node(function) {
            node @ Node::Encoding { .. } => self.encoding(node, true)?,
            _ => self.print(function)?,
        }
        self.push("::")?;
        self.print(entity)
    }

    /// Writes the parameters, and what follows them.
    pub fn behind_name(&mut self, function: &FunctionNode) -> PrintResult {
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
            Some(condition) => self.enclosed(" requires ", condition, ""),
            None => Ok(()),
        }
    }

    pub fn qualifiers(&mut self, qualifiers: Qualifiers) -> PrintResult {
        let words = [
            (qualifiers.is_const, " const"),
            (qualifiers.is_volatile, " volatile"),
            (qualifiers.is_restrict, " restrict"),
        ];
        words.into_iter().filter(|(is_set, _)| *is_set).try_for_each(|(_, word)| self.push(word))
    }

    fn exceptions(&mut self, exceptions: Exceptions) -> PrintResult {
        match exceptions {
            Exceptions::None => self.push(" noexcept"),
            Exceptions::NoneIf(condition) => self.enclosed(" noexcept(", condition, ")"),
            Exceptions::Some(types) => self.enclosed_list(" throw(", types, ")"),
        }
    }

    /// The argument for a template parameter; of a pack, its current element. None for a parameter of the lambda whose
    /// signature is being written.
    pub fn argument(&mut self, id: NodeId) -> Result<Option<NodeId>, PrintStop> {
        let argument = self.whole_argument(id)?;
        let element = match (argument.map(|argument| self.tree.node(argument)), self.element) {
            (Some(Node::Pack(list)), Some(element)) => self.tree.item(list, element),
            _ => None,
        };
        Ok(element.or(argument))
    }

    /// As [`Printer::argument`], but a whole pack. `T_` in a substitution refers to the arguments of the function that
    /// is being written, not of the one in which it was first read.
    pub fn whole_argument(&mut self, id: NodeId) -> Result<Option<NodeId>, PrintStop> {
        self.step()?;
        let Node::Parameter { scope, index } = self.tree.node(id) else { return Ok(None) };
        if self.heads.is_some() {
            return Ok(None);
        }
        let scopes = [self.scope, self.tree.arguments(scope)];
        let mut arguments = scopes.into_iter().flatten().filter_map(|list| self.tree.item(list, index as usize));
        arguments.next().ok_or(PrintStop::Refused).map(Some)
    }
}
