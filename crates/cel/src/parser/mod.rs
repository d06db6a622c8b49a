//! Expressions from tokens: names, functions, numbers of arguments and patterns are checked here.

mod calls;

use crate::{
    DEPTH_MAX, LENGTH_MAX, ParseError,
    lexer::{Kind, Token, tokens},
    node::{Node, Operator},
};

const OPERATORS: [(&str, Operator, u8); 11] = [
    ("==", Operator::Equal, 0),
    ("!=", Operator::Unequal, 0),
    ("<=", Operator::LessOrEqual, 0),
    (">=", Operator::GreaterOrEqual, 0),
    ("<", Operator::Less, 0),
    (">", Operator::Greater, 0),
    ("+", Operator::Plus, 1),
    ("-", Operator::Minus, 1),
    ("*", Operator::Times, 2),
    ("/", Operator::Over, 2),
    ("%", Operator::Remainder, 2),
];

/// Operators of this rank bind the strongest.
const RANK_MAX: u8 = 2;

pub(crate) fn parse(source: &str) -> Result<Node, ParseError> {
    if source.len() > LENGTH_MAX {
        let message = format!("is {} bytes long; at most {LENGTH_MAX} are accepted", source.len());
        return Err(ParseError { offset: 0, message });
    }
    let mut parser = Parser { tokens: tokens(source)?, at: 0, depth: 0, variables: Vec::new() };
    let Deep { node, .. } = parser.expression()?;
    match parser.peek() {
        Kind::End => Ok(node),
        kind => {
            let message =
                format!("{} is not expected here; write an operator, or end the expression", name(kind));
            parser.error(message)
        }
    }
}

/// A node and the depth of its tree.
struct Deep {
    node: Node,
    depth: u32,
}

impl Deep {
    fn leaf(node: Node) -> Self {
        Self { node, depth: 1 }
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    /// Depth of the recursion.
    depth: u32,
    /// Variables of the enclosing loops, the outermost first.
    variables: Vec<String>,
}

type Parsed = Result<Deep, ParseError>;

fn name(kind: &Kind) -> String {
    match kind {
        Kind::Name(name) => format!("`{name}`"),
        Kind::Text(_) => "a text".to_owned(),
        Kind::Int(_) | Kind::Uint(_) | Kind::Double(_) => "a number".to_owned(),
        Kind::Symbol(symbol) => format!("`{symbol}`"),
        Kind::End => "the end".to_owned(),
    }
}

impl Parser {
    fn peek(&self) -> &Kind {
        &self.tokens[self.at].kind
    }

    fn offset(&self) -> usize {
        self.tokens[self.at].offset
    }

    fn next(&mut self) -> Kind {
        let kind = self.peek().clone();
        // The last token is the end.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        kind
    }

    fn takes(&mut self, symbol: &'static str) -> bool {
        let is_next = *self.peek() == Kind::Symbol(symbol);
        if is_next {
            self.next();
        }
        is_next
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), ParseError> {
        if self.takes(symbol) {
            return Ok(());
        }
        let message = format!("{} is not expected here; write `{symbol}`", name(self.peek()));
        self.error(message)
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { offset: self.offset(), message: message.into() })
    }

    fn too_deep<T>(&self) -> Result<T, ParseError> {
        self.error(format!("the expression is more than {DEPTH_MAX} levels deep; split it into conditions"))
    }

    /// A node above others of this depth.
    fn above(&self, node: Node, depth: u32) -> Parsed {
        if depth >= DEPTH_MAX {
            return self.too_deep();
        }
        Ok(Deep { node, depth: depth + 1 })
    }

    fn expression(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.too_deep();
        }
        let condition = self.chain("||", Node::Or, |parser| parser.chain("&&", Node::And, Self::relation))?;
        let parsed = if self.takes("?") {
            let first = self.chain("||", Node::Or, |parser| parser.chain("&&", Node::And, Self::relation))?;
            self.expect(":")?;
            let second = self.expression()?;
            let depth = condition.depth.max(first.depth).max(second.depth);
            self.above(Node::Conditional(Box::new([condition.node, first.node, second.node])), depth)
        } else {
            Ok(condition)
        };
        self.depth -= 1;
        parsed
    }

    /// Operands with one operator between them.
    fn chain(
        &mut self,
        symbol: &'static str,
        of: fn(Box<[Node]>) -> Node,
        operand: impl Fn(&mut Self) -> Parsed,
    ) -> Parsed {
        let first = operand(self)?;
        if *self.peek() != Kind::Symbol(symbol) {
            return Ok(first);
        }
        let (mut nodes, mut depth) = (vec![first.node], first.depth);
        while self.takes(symbol) {
            let next = operand(self)?;
            depth = depth.max(next.depth);
            nodes.push(next.node);
        }
        self.above(of(nodes.into()), depth)
    }

    fn relation(&mut self) -> Parsed {
        self.binary(0)
    }

    fn binary(&mut self, rank: u8) -> Parsed {
        let operand =
            |parser: &mut Self| if rank == RANK_MAX { parser.unary() } else { parser.binary(rank + 1) };
        let mut left = operand(self)?;
        loop {
            let operator = match self.peek() {
                Kind::Symbol(symbol) => {
                    let of = OPERATORS.iter().find(|operator| operator.0 == *symbol && operator.2 == rank);
                    of.map(|operator| operator.1)
                }
                Kind::Name(name) if name == "in" && rank == 0 => Some(Operator::In),
                _ => None,
            };
            let Some(operator) = operator else { return Ok(left) };
            self.next();
            let right = operand(self)?;
            let depth = left.depth.max(right.depth);
            left = self.above(Node::Binary(operator, Box::new((left.node, right.node))), depth)?;
        }
    }

    fn unary(&mut self) -> Parsed {
        for (symbol, of) in [("!", Node::Not as fn(_) -> _), ("-", Node::Negative as fn(_) -> _)] {
            if !self.takes(symbol) {
                continue;
            }
            if let (Kind::Int(number), "-") = (self.peek(), symbol) {
                let number = i64::try_from(-i128::from(*number));
                let Ok(number) = number else { return self.error("the number is too long") };
                self.next();
                return self.members(Deep::leaf(Node::Int(number)));
            }
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return self.too_deep();
            }
            let operand = self.unary()?;
            self.depth -= 1;
            return self.above(of(Box::new(operand.node)), operand.depth);
        }
        let primary = self.primary()?;
        self.members(primary)
    }

    fn members(&mut self, mut of: Deep) -> Parsed {
        loop {
            if self.takes(".") {
                let offset = self.offset();
                let Kind::Name(member) = self.next() else {
                    return Err(ParseError { offset, message: "a name is missing after `.`".to_owned() });
                };
                of = if self.takes("(") {
                    self.method(of, &member, offset)?
                } else {
                    self.select(of, member)?
                };
            } else if self.takes("[") {
                let index = self.expression()?;
                self.expect("]")?;
                of = self.index(of, index)?;
            } else {
                return Ok(of);
            }
        }
    }

    fn select(&self, of: Deep, key: String) -> Parsed {
        match entry_of(of.node, &key) {
            Ok(node) => Ok(Deep { node, depth: of.depth }),
            Err(node) => self.above(Node::Select(Box::new(node), key.into()), of.depth),
        }
    }

    fn index(&self, of: Deep, index: Deep) -> Parsed {
        let depth = of.depth.max(index.depth);
        let node = match (of.node, index.node) {
            (node, Node::Text(key)) => match entry_of(node, &key) {
                Ok(node) => return Ok(Deep { node, depth: of.depth }),
                Err(node) => Node::Index(Box::new((node, Node::Text(key)))),
            },
            (of, index) => Node::Index(Box::new((of, index))),
        };
        self.above(node, depth)
    }

    fn primary(&mut self) -> Parsed {
        let offset = self.offset();
        match self.next() {
            Kind::Text(text) => Ok(Deep::leaf(Node::Text(text.into()))),
            Kind::Uint(number) => Ok(Deep::leaf(Node::Uint(number))),
            Kind::Double(number) => Ok(Deep::leaf(Node::Double(number))),
            Kind::Int(number) => match i64::try_from(number) {
                Ok(number) => Ok(Deep::leaf(Node::Int(number))),
                Err(_) => Err(ParseError { offset, message: "the number is too long".to_owned() }),
            },
            Kind::Name(name) => self.named(&name, offset),
            Kind::Symbol("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Kind::Symbol("[") => {
                let (nodes, depth) = self.arguments("]")?;
                self.above(Node::List(nodes.into()), depth)
            }
            Kind::Symbol("{") => self.map(),
            kind => {
                let message = format!("{} is not expected here; write a value", name(&kind));
                Err(ParseError { offset, message })
            }
        }
    }

    /// Expressions up to the symbol, and the depth of the deepest.
    fn arguments(&mut self, end: &'static str) -> Result<(Vec<Node>, u32), ParseError> {
        let (mut nodes, mut depth) = (Vec::new(), 0);
        while !self.takes(end) {
            let argument = self.expression()?;
            depth = depth.max(argument.depth);
            nodes.push(argument.node);
            if !self.takes(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok((nodes, depth))
    }

    fn map(&mut self) -> Parsed {
        let (mut pairs, mut depth) = (Vec::new(), 0);
        while !self.takes("}") {
            let key = self.expression()?;
            self.expect(":")?;
            let value = self.expression()?;
            depth = depth.max(key.depth).max(value.depth);
            pairs.push((key.node, value.node));
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        self.above(Node::Map(pairs.into()), depth)
    }

    fn named(&mut self, name: &str, offset: usize) -> Parsed {
        let error = |message: String| Err(ParseError { offset, message });
        if self.takes("(") {
            return self.call(name, offset);
        }
        if let Some(variable) = self.variables.iter().rposition(|variable| variable == name) {
            return Ok(Deep::leaf(Node::Variable(variable)));
        }
        match name {
            "true" => Ok(Deep::leaf(Node::Bool(true))),
            "false" => Ok(Deep::leaf(Node::Bool(false))),
            "null" => Ok(Deep::leaf(Node::Null)),
            "descriptors" => Ok(Deep::leaf(Node::Descriptors)),
            "limit" => self.limit(),
            "in" => error("`in` is not expected here; write a value before it".to_owned()),
            name => {
                // Entries may have dots in their names, and are written so elsewhere.
                let name = self.dotted(name);
                error(format!(
                    "`{name}` is not a variable; write descriptors[0][\"{name}\"] for an entry of the request, or put a text in quotes"
                ))
            }
        }
    }

    /// The name with the names that follow it after dots, except a method's.
    fn dotted(&mut self, first: &str) -> String {
        let mut name = first.to_owned();
        while let [dot, Token { kind: Kind::Name(member), .. }, after, ..] = &self.tokens[self.at..]
            && dot.kind == Kind::Symbol(".")
            && after.kind != Kind::Symbol("(")
        {
            name = format!("{name}.{member}");
            self.at += 2;
        }
        name
    }

    /// Parses a field, after `limit`.
    fn limit(&mut self) -> Parsed {
        let field = match (self.next(), self.next()) {
            (Kind::Symbol("."), Kind::Name(field)) => Some(field),
            (Kind::Symbol("["), Kind::Text(field)) if self.takes("]") => Some(field),
            _ => None,
        };
        match field.as_deref() {
            Some("name") => Ok(Deep::leaf(Node::LimitName)),
            Some("id") => Ok(Deep::leaf(Node::LimitId)),
            _ => self.error("`limit` has no other fields than `limit.name` and `limit.id`"),
        }
    }
}

/// The entry of a descriptor with a known index, if the value is one.
fn entry_of(of: Node, key: &str) -> Result<Node, Node> {
    let Node::Index(sides) = &of else { return Err(of) };
    let descriptor = match &**sides {
        (Node::Descriptors, Node::Int(index)) => usize::try_from(*index).ok(),
        (Node::Descriptors, Node::Uint(index)) => usize::try_from(*index).ok(),
        _ => None,
    };
    match descriptor {
        Some(descriptor) => Ok(Node::Entry { descriptor, key: key.into() }),
        None => Err(of),
    }
}
