//! Writes expressions.

use super::printer::{PrintResult, PrintStop, Printer};
use super::tables::{Builtin, Literal, Operator, OperatorForm};
use super::tree::{Node, NodeId, NodeList};

impl<'a> Printer<'_, 'a> {
    #[inline(never)]
    pub fn expression(&mut self, node: Node<'a>) -> PrintResult {
        match node {
            Node::Unary(operator, operand) => self.unary(operator, operand),
            Node::Postfix(operator, operand) => {
                self.operand(operand)?;
                self.push(operator.text)
            }
            Node::Binary(operator, left, right) => self.binary(operator, left, right),
            Node::Choice(condition, first, second) => {
                self.operand(condition)?;
                self.push("?")?;
                self.operand(first)?;
                self.push(" : ")?;
                self.operand(second)
            }
            Node::Call(function, arguments) => {
                // A known function is written without its type.
                match self.tree.node(function) {
                    Node::Encoding { name, .. } => self.operand(name)?,
                    _ => self.operand(function)?,
                }
                self.enclosed_list("(", arguments, ")")
            }
            Node::Cast(to, value) => {
                self.enclosed("(", to, ")")?;
                self.operand(value)
            }
            Node::New { operator, placement, of, with } => self.new_expression(operator, placement, of, with),
            Node::SizeofPack(pack) => self.sizeof_pack(pack),
            Node::SizeofArguments(arguments) => self.sizeof_arguments(arguments),
            Node::Fold { operator, left, right } => self.fold(operator, left, right),
            Node::FunctionParameter(index) => {
                self.push("{parm#")?;
                self.push_number(u64::from(index) + 1)?;
                self.push("}")
            }
            Node::Word(text) => self.push(text),
            Node::Literal { of, is_negative, value } => self.literal(of, is_negative, value),
            Node::Requires { parameters, requirements } => self.requires(parameters, requirements),
            _ => self.other_expression(node),
        }
    }

    #[inline(never)]
    fn other_expression(&mut self, node: Node<'a>) -> PrintResult {
        match node {
            Node::Parenthesized(items) => self.enclosed_list("(", items, ")"),
            Node::Braced(of, items) => {
                if let Some(of) = of {
                    self.print(of)?;
                }
                self.enclosed_list("{", items, "}")
            }
            Node::Global(of) => self.enclosed("::", of, ""),
            Node::DestructorName(of) => self.enclosed("~", of, ""),
            Node::Designated { place, value, is_index } => {
                self.enclosed(if is_index { "[" } else { "." }, place, if is_index { "]=" } else { "=" })?;
                self.operand(value)
            }
            Node::DesignatedRange(first, last, value) => {
                self.enclosed("[", first, " ... ")?;
                self.print(last)?;
                self.push("]=")?;
                self.operand(value)
            }
            Node::VendorCall(name, arguments) => {
                self.push(name)?;
                self.enclosed_list("(", arguments, ")")
            }
            Node::Requirement { expression, is_noexcept, constraint } => {
                self.requirement(expression, is_noexcept, constraint)
            }
            Node::TypeRequirement(of) => self.enclosed("typename ", of, ""),
            Node::NestedRequirement(condition) => self.enclosed("requires ", condition, ""),
            _ => Err(PrintStop::Refused),
        }
    }

    /// Writes an operand, in parentheses unless it is simple.
    pub fn operand(&mut self, id: NodeId) -> PrintResult {
        let is_simple = match self.tree.node(id) {
            Node::Qualified(_, name) => !matches!(self.tree.node(name), Node::Template(..)),
            Node::Name(_) | Node::Braced(..) | Node::FunctionParameter(_) | Node::Parenthesized(_) => true,
            _ => false,
        };
        if is_simple {
            return self.print(id);
        }
        self.enclosed("(", id, ")")
    }

    fn unary(&mut self, operator: &'static Operator, operand: NodeId) -> PrintResult {
        self.push(operator.text)?;
        if matches!(operator.form, OperatorForm::OfType | OperatorForm::OfValue) {
            return self.enclosed(" (", operand, ")");
        }
        if operator.text.starts_with(|first: char| first.is_ascii_lowercase()) {
            self.push(" ")?;
        }
        // `&A::f` is written without the type of the function.
        if operator.code == *b"ad"
            && let Node::Encoding { name, .. } = self.tree.node(operand)
            && let Node::Qualified(..) = self.tree.node(name)
        {
            return self.print(name);
        }
        self.operand(operand)
    }

    fn binary(&mut self, operator: &'static Operator, left: NodeId, right: NodeId) -> PrintResult {
        match operator.form {
            OperatorForm::NamedCast => {
                self.push(operator.text)?;
                self.enclosed("<", left, ">(")?;
                self.print(right)?;
                self.push(")")
            }
            OperatorForm::Subscript => {
                self.operand(left)?;
                self.enclosed("[", right, "]")
            }
            _ => {
                // A bare `>` would end a list of template arguments.
                let is_closing = operator.text == ">";
                if is_closing {
                    self.push("(")?;
                }
                self.operand(left)?;
                self.push(operator.text)?;
                self.operand(right)?;
                if is_closing { self.push(")") } else { Ok(()) }
            }
        }
    }

    fn new_expression(
        &mut self,
        operator: &'static Operator,
        placement: NodeList,
        of: NodeId,
        with: Option<NodeId>,
    ) -> PrintResult {
        self.push(operator.text)?;
        self.push(" ")?;
        if !placement.is_empty() {
            self.enclosed_list("(", placement, ") ")?;
        }
        self.print(of)?;
        with.map_or(Ok(()), |with| self.print(with))
    }

    /// Writes the number of elements of a pack, if it is known.
    fn sizeof_pack(&mut self, pack: NodeId) -> PrintResult {
        if let Some(list) = self.pack_in(pack)? {
            return self.push_number(list.len() as u64);
        }
        self.enclosed("sizeof...(", pack, ")")
    }

    /// Writes the number of arguments, counting the elements of packs.
    fn sizeof_arguments(&mut self, arguments: NodeList) -> PrintResult {
        let mut count = 0;
        for &argument in self.tree.items(arguments) {
            count += match self.tree.node(argument) {
                Node::Expansion(pattern) => self.pack_in(pattern)?.map_or(1, NodeList::len),
                _ => 1,
            };
        }
        self.push_number(count as u64)
    }

    fn fold(&mut self, operator: &'static Operator, left: Option<NodeId>, right: Option<NodeId>) -> PrintResult {
        let outer = self.element.take(); // a fold is over all elements
        self.push("(")?;
        match left {
            Some(left) => self.operand(left)?,
            None => self.push("...")?,
        }
        self.push(operator.text)?;
        if left.is_some() && right.is_some() {
            self.push("...")?;
            self.push(operator.text)?;
        }
        match right {
            Some(right) => self.operand(right)?,
            None => self.push("...")?,
        }
        self.element = outer;
        self.push(")")
    }

    fn literal(&mut self, of: NodeId, is_negative: bool, value: &str) -> PrintResult {
        let sign = if is_negative { "-" } else { "" };
        let builtin: Option<&Builtin> = match self.tree.node(of) {
            Node::Builtin(builtin) => Some(builtin),
            // A literal without a value, such as a string or `nullptr`.
            _ if value.is_empty() => return self.print(of),
            _ => None,
        };
        let kind = builtin.map_or(Literal::Cast, |builtin| builtin.literal);
        match (kind, value) {
            (Literal::Bool, "0") if !is_negative => return self.push("false"),
            (Literal::Bool, "1") if !is_negative => return self.push("true"),
            (Literal::Suffix(suffix), _) => return self.push_all(&[sign, value, suffix]),
            _ => {}
        }
        self.enclosed("(", of, ")")?;
        match kind {
            Literal::Float => self.push_all(&[sign, "[", value, "]"]),
            _ => self.push_all(&[sign, value]),
        }
    }

    fn requires(&mut self, parameters: NodeList, requirements: NodeList) -> PrintResult {
        self.push("requires")?;
        if !parameters.is_empty() {
            self.enclosed_list(" (", parameters, ")")?;
        }
        self.push(" {")?;
        for at in 0..requirements.len() {
            let Some(requirement) = self.tree.item(requirements, at) else { break };
            self.enclosed(" ", requirement, ";")?;
        }
        self.push(" }")
    }

    fn requirement(&mut self, expression: NodeId, is_noexcept: bool, constraint: Option<NodeId>) -> PrintResult {
        if !is_noexcept && constraint.is_none() {
            return self.print(expression);
        }
        self.enclosed("{", expression, if is_noexcept { "} noexcept" } else { "}" })?;
        match constraint {
            Some(constraint) => self.enclosed(" -> ", constraint, ""),
            None => Ok(()),
        }
    }
}
