//! Names of functions and variables, and special names of compilers (vtables, thunks ...).
//!
//! ```text
//! ENCODING  = NAME [ TYPE+ [ "Q" EXPRESSION ] ] | SPECIAL
//! NAME      = "N" [ QUALIFIERS ] PREFIX "E" | "Z" ENCODING "E" ENTITY | [ "St" ] UNQUALIFIED [ ARGUMENTS ]
//! PREFIX    = UNQUALIFIED | "St" | SUBSTITUTION | PARAMETER | DECLTYPE | PREFIX UNQUALIFIED | PREFIX ARGUMENTS
//! ```

use super::parser::Parser;
use super::tables::{operator_of, special_of, standard_of};
use super::tree::{FunctionNode, Node, NodeId, NodeList, Qualifiers};

/// A name, and the qualifiers that a nested name has for `this`.
#[derive(Clone, Copy)]
struct NestedName {
    node: NodeId,
    of_this: ThisQualifiers,
}

/// Qualifiers of the object of a member function.
#[derive(Clone, Copy, Default)]
struct ThisQualifiers {
    qualifiers: Qualifiers,
    reference: &'static str,
    is_explicit: bool,
}

impl<'a> Parser<'a> {
    /// Reads a whole name behind its `_Z`.
    pub fn symbol(&mut self) -> Option<NodeId> {
        let mut node = self.encoding()?;
        while self.peek() == Some(b'.') {
            self.step()?;
            let suffix = self.clone_suffix()?;
            node = self.add(Node::Clone(node, suffix))?;
        }
        self.rest().is_empty().then_some(node)
    }

    /// The suffix of a copy made by the compiler: `.constprop.0`.
    fn clone_suffix(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let run = |from: usize, wanted: fn(&u8) -> bool| bytes[from..].iter().take_while(|byte| wanted(byte)).count();
        let mut len = 1 + run(1, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_');
        loop {
            let digits = if bytes.get(len) == Some(&b'.') { run(len + 1, u8::is_ascii_digit) } else { 0 };
            if digits == 0 {
                break;
            }
            len += 1 + digits;
        }
        if len == 1 {
            return None;
        }
        let suffix = rest.get(..len)?;
        self.expect(suffix)?;
        Some(suffix)
    }

    pub fn encoding(&mut self) -> Option<NodeId> {
        self.nest(|parser| parser.with_scope(Self::encoding_here))
    }

    fn encoding_here(&mut self) -> Option<NodeId> {
        if matches!(self.peek(), Some(b'T' | b'G')) {
            return self.special();
        }
        let NestedName { node, of_this } = self.name()?;
        if let Some(arguments) = self.last_arguments(node) {
            self.tree.set_arguments(self.scope, arguments);
        }
        if matches!(self.peek(), None | Some(b'E' | b'.')) {
            return self.qualified_by(of_this, node);
        }
        let returns = if self.has_return_type(node) { Some(self.ty()?) } else { None };
        let parameters = self.parameters(|parser| matches!(parser.peek(), None | Some(b'E' | b'.' | b'Q')))?;
        let requires = if self.eat("Q") { Some(self.expression()?) } else { None };
        let function = self.tree.add_function(FunctionNode {
            returns,
            parameters,
            qualifiers: of_this.qualifiers,
            reference: of_this.reference,
            requires,
            has_explicit_object: of_this.is_explicit,
            ..FunctionNode::default()
        })?;
        self.add(Node::Encoding { name: node, function, scope: self.scope })
    }

    /// The types of parameters; empty for `v` alone.
    pub fn parameters(&mut self, is_end: impl FnMut(&mut Self) -> bool + Copy) -> Option<NodeList> {
        let mut is_end = is_end;
        if self.peek() == Some(b'v') {
            let before = self.checkpoint();
            self.next();
            if is_end(self) {
                return Some(NodeList::default());
            }
            self.go_back(before);
        }
        let list = self.list(is_end, Self::ty)?;
        (!list.is_empty()).then_some(list)
    }

    /// The template arguments that `T_` refers to in the type of this function.
    fn last_arguments(&self, mut node: NodeId) -> Option<NodeList> {
        loop {
            node = match self.tree.node(node) {
                Node::Template(_, arguments) => return Some(arguments),
                Node::Local(_, entity) => entity,
                Node::Tagged(name, _) | Node::OfModule(name, _) => name,
                Node::Qualified(prefix, _) => prefix,
                _ => return None,
            }
        }
    }

    /// Whether the type has a return type: that of a template has, except for constructors, destructors and
    /// conversions.
    fn has_return_type(&self, mut node: NodeId) -> bool {
        let mut is_template = false;
        loop {
            node = match self.tree.node(node) {
                Node::Template(name, _) => {
                    is_template = true;
                    name
                }
                Node::Local(_, entity) | Node::Qualified(_, entity) => entity,
                Node::Tagged(name, _) | Node::OfModule(name, _) | Node::Friend(name) => name,
                Node::Constructor(_) | Node::Destructor(_) | Node::Conversion(_) => return false,
                _ => return is_template,
            }
        }
    }

    fn name(&mut self) -> Option<NestedName> {
        let plain = |node| NestedName { node, of_this: ThisQualifiers::default() };
        match self.peek()? {
            b'N' => self.nested_name(),
            b'Z' => self.local_name(),
            _ => self.unscoped_name().map(plain),
        }
    }

    /// A name in a type or an expression.
    pub fn class_name(&mut self) -> Option<NodeId> {
        let NestedName { node, of_this } = self.name()?;
        self.qualified_by(of_this, node)
    }

    fn qualified_by(&mut self, ThisQualifiers { qualifiers, .. }: ThisQualifiers, node: NodeId) -> Option<NodeId> {
        if qualifiers.is_empty() { Some(node) } else { self.add(Node::Qualify(qualifiers, node)) }
    }

    /// A name with the template arguments that follow.
    pub fn template_of(&mut self, name: NodeId) -> Option<NodeId> {
        let arguments = self.template_arguments()?;
        self.add(Node::Template(name, arguments))
    }

    fn unscoped_name(&mut self) -> Option<NodeId> {
        let mut is_substitution = false;
        let node = if self.eat("St") {
            let std = self.add(Node::Name("std"))?;
            let name = self.unqualified_name(Some(std))?;
            self.add(Node::Qualified(std, name))?
        } else if self.peek() == Some(b'S') && !self.refers_to_module() {
            is_substitution = true;
            self.substitution()?
        } else {
            self.unqualified_name(None)?
        };
        if self.peek() != Some(b'I') {
            return (!is_substitution).then_some(node);
        }
        if !is_substitution {
            self.substitutable(node);
        }
        self.template_of(node)
    }

    /// `S_`, or a class of the standard library.
    pub fn substitution(&mut self) -> Option<NodeId> {
        self.expect("S")?;
        let Some(standard) = self.peek().and_then(standard_of) else { return self.back_reference() };
        self.next();
        let mut node = self.add(Node::Standard(standard))?;
        if self.peek() == Some(b'B') {
            node = self.tagged(node)?;
            self.substitutable(node);
        }
        Some(node)
    }

    fn nested_name(&mut self) -> Option<NestedName> {
        self.expect("N")?;
        let is_explicit = self.eat("H");
        let qualifiers = self.qualifiers();
        let reference = self.reference_of_this();
        let mut prefix: Option<NodeId> = None;
        while !self.eat("E") {
            self.step()?;
            let is_std = prefix.is_none() && self.eat("St");
            let (node, is_new) = match (self.peek()?, prefix) {
                _ if is_std => (self.add(Node::Name("std"))?, false),
                (b'S', None) if !self.refers_to_module() => (self.substitution()?, false),
                (b'T', None) => (self.template_parameter()?, true),
                (b'D', None) if matches!(self.peek_second(), Some(b't' | b'T')) => (self.decltype()?, true),
                (b'I', Some(name)) => (self.template_of(name)?, true),
                (b'M', Some(member)) => {
                    self.next(); // the initializer of a member
                    (member, false)
                }
                (_, before) => {
                    let name = self.unqualified_name(before)?;
                    (before.map_or(Some(name), |before| self.add(Node::Qualified(before, name)))?, true)
                }
            };
            prefix = Some(node);
            if is_new && self.peek() != Some(b'E') {
                self.substitutable(node);
            }
        }
        Some(NestedName { node: prefix?, of_this: ThisQualifiers { qualifiers, reference, is_explicit } })
    }

    fn reference_of_this(&mut self) -> &'static str {
        match self.peek() {
            Some(b'R') => {
                self.next();
                "&"
            }
            Some(b'O') => {
                self.next();
                "&&"
            }
            _ => "",
        }
    }

    /// An entity local to a function.
    fn local_name(&mut self) -> Option<NestedName> {
        self.expect("Z")?;
        let function = self.encoding()?;
        self.expect("E")?;
        if self.eat("s") {
            self.discriminator()?;
            let text = self.add(Node::StringLiteral)?;
            return Some(NestedName {
                node: self.add(Node::Local(function, text))?,
                of_this: ThisQualifiers::default(),
            });
        }
        let argument = if self.eat("d") { Some(self.number_from_underscore()?) } else { None };
        let NestedName { mut node, of_this } = self.nest(Self::name)?;
        self.discriminator()?;
        if let Some(number) = argument {
            let argument = self.add(Node::DefaultArgument(number))?;
            node = self.add(Node::Local(argument, node))?;
        }
        Some(NestedName { node: self.add(Node::Local(function, node))?, of_this })
    }

    /// The number of an entity among several of one name: `_0`, `__10_`.
    fn discriminator(&mut self) -> Option<()> {
        if self.eat("__") {
            self.number()?;
            return self.expect("_");
        }
        if self.peek() == Some(b'_') && self.peek_second().is_some_and(|byte| byte.is_ascii_digit()) {
            self.next();
            self.next();
        }
        Some(())
    }

    /// One part of a name; `prefix` is what comes before it.
    pub fn unqualified_name(&mut self, prefix: Option<NodeId>) -> Option<NodeId> {
        self.step()?;
        let module = if self.peek() == Some(b'W') || self.refers_to_module() { Some(self.module()?) } else { None };
        let is_friend = self.eat("F");
        let is_internal = self.eat("L");
        let mut node = match self.peek()? {
            b'0'..=b'9' => self.plain_name()?,
            b'C' => self.constructor(prefix?)?,
            b'D' if self.peek_second() == Some(b'C') => self.binding()?,
            b'D' => self.destructor(prefix?)?,
            b'U' => self.unnamed()?,
            b'a'..=b'z' => self.operator_name()?,
            _ => return None,
        };
        if is_internal {
            self.discriminator()?;
        }
        if let Some(module) = module {
            node = self.add(Node::OfModule(node, module))?;
        }
        if is_friend {
            node = self.add(Node::Friend(node))?;
        }
        while self.peek() == Some(b'B') {
            self.step()?;
            node = self.tagged(node)?;
        }
        Some(node)
    }

    fn tagged(&mut self, node: NodeId) -> Option<NodeId> {
        self.expect("B")?;
        let tag = self.source_name()?;
        self.add(Node::Tagged(node, tag))
    }

    fn plain_name(&mut self) -> Option<NodeId> {
        let name = self.source_name()?;
        let is_anonymous = name.strip_prefix("_GLOBAL_").is_some_and(|rest| {
            rest.starts_with(['.', '_', '$']) && rest.as_bytes().get(1) == Some(&b'N') // also of older compilers
        });
        self.add(Node::Name(if is_anonymous { "(anonymous namespace)" } else { name }))
    }

    /// `W3FooW3Bar`, `WP` before a partition.
    fn module(&mut self) -> Option<NodeId> {
        let mut of = None;
        loop {
            self.step()?;
            if self.eat("W") {
                let is_partition = self.eat("P");
                let name = self.source_name()?;
                let module = self.add(Node::Module { of, name, is_partition })?;
                of = Some(self.substitutable(module));
            } else if of.is_some() {
                return of;
            } else {
                self.expect("S")?;
                of = Some(self.back_reference()?);
            }
        }
    }

    /// Whether a substitution follows that stands for a module: it begins the name of an entity in it.
    pub fn refers_to_module(&mut self) -> bool {
        if self.peek() != Some(b'S') {
            return false;
        }
        let before = self.checkpoint();
        self.next();
        let node = self.back_reference();
        self.go_back(before);
        node.is_some_and(|node| matches!(self.tree.node(node), Node::Module { .. }))
    }

    fn constructor(&mut self, prefix: NodeId) -> Option<NodeId> {
        self.expect("C")?;
        let is_inherited = self.eat("I");
        matches!(self.next()?, b'1'..=b'5').then_some(())?;
        let of = if is_inherited { self.ty()? } else { prefix };
        self.add(Node::Constructor(of))
    }

    fn destructor(&mut self, prefix: NodeId) -> Option<NodeId> {
        self.expect("D")?;
        matches!(self.next()?, b'0'..=b'5').then_some(())?;
        self.add(Node::Destructor(prefix))
    }

    /// `auto [a, b]`
    fn binding(&mut self) -> Option<NodeId> {
        self.expect("DC")?;
        let names = self.list_to_end(|parser| parser.behind("", Self::source_name, Node::Name))?;
        self.add(Node::Binding(names))
    }

    /// A lambda, a block, or an unnamed class.
    fn unnamed(&mut self) -> Option<NodeId> {
        self.expect("U")?;
        match self.next()? {
            b't' => {
                let node = self.behind("", Self::number_from_underscore, Node::Unnamed)?;
                Some(self.substitutable(node))
            }
            b'b' => self.behind("", Self::number_from_underscore, Node::Block),
            b'l' => self.lambda(),
            _ => None,
        }
    }

    fn lambda(&mut self) -> Option<NodeId> {
        let heads = self.lambda_heads()?;
        if self.eat("Q") {
            self.expression()?;
        }
        let parameters = self.parameters(|parser| matches!(parser.peek(), Some(b'E' | b'Q')))?;
        if self.eat("Q") {
            self.expression()?;
        }
        self.expect("E")?;
        let number = self.number_from_underscore()?;
        self.add(Node::Lambda { heads, parameters, number })
    }

    pub fn operator_name(&mut self) -> Option<NodeId> {
        if self.eat("cv") {
            let outer = std::mem::replace(&mut self.is_conversion, true);
            let of = self.ty();
            self.is_conversion = outer;
            return self.add(Node::Conversion(of?));
        }
        if self.eat("li") {
            return self.behind("", Self::source_name, Node::LiteralOperator);
        }
        if self.peek() == Some(b'v') && self.peek_second().is_some_and(|byte| byte.is_ascii_digit()) {
            self.next();
            self.next(); // number of operands
            return self.behind("", Self::source_name, Node::VendorOperator);
        }
        let operator = operator_of(self.peek_code()?)?;
        self.next();
        self.next();
        self.add(Node::OperatorName(operator))
    }

    /// A special name: vtable, thunk, guard variable ...
    fn special(&mut self) -> Option<NodeId> {
        let code = self.peek_code()?;
        self.next();
        self.next();
        if let Some(words) = special_of(code) {
            let of = match &code {
                b"GV" | b"TH" | b"TW" => self.name()?.node,
                b"GA" => self.encoding()?,
                _ => self.ty()?,
            };
            return self.add(Node::Special(words, of));
        }
        match &code {
            b"Th" => {
                self.call_offset_of(b'h')?;
                self.special_function("non-virtual thunk to ")
            }
            b"Tv" => {
                self.call_offset_of(b'v')?;
                self.special_function("virtual thunk to ")
            }
            b"Tc" => {
                self.call_offset()?;
                self.call_offset()?;
                self.special_function("covariant return thunk to ")
            }
            b"GT" => match self.next()? {
                b'n' => self.special_function("non-transaction clone for "),
                _ => self.special_function("transaction clone for "),
            },
            b"TC" => {
                let within = self.ty()?;
                self.number()?;
                self.expect("_")?;
                let of = self.ty()?;
                self.add(Node::ConstructionTable { of, within })
            }
            b"TA" => {
                self.behind("", Self::template_argument, |value| Node::Special("template parameter object for ", value))
            }
            b"GR" => {
                let name = self.name()?.node;
                let number = if self.rest().is_empty() { 0 } else { self.sequence_number()? };
                self.add(Node::Temporary(name, number))
            }
            b"GI" => self.behind("", Self::module, |module| Node::Special("initializer for module ", module)),
            _ => None,
        }
    }

    /// A function, behind words that say what is special.
    fn special_function(&mut self, words: &'static str) -> Option<NodeId> {
        self.behind("", Self::encoding, |of| Node::Special(words, of))
    }

    fn call_offset(&mut self) -> Option<()> {
        let kind = self.next()?;
        self.call_offset_of(kind)
    }

    /// The offset by which a thunk adjusts `this`: `16_`, `0_n24_`.
    fn call_offset_of(&mut self, kind: u8) -> Option<()> {
        let numbers = match kind {
            b'h' => 1,
            b'v' => 2,
            _ => return None,
        };
        for _ in 0..numbers {
            self.eat("n");
            self.take_while(|byte| byte.is_ascii_digit())?;
            self.expect("_")?;
        }
        Some(())
    }
}
