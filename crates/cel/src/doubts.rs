//! Parts of a valid expression that never have a value, or never hold.

use crate::{
    Expression,
    node::{Node, Operator},
};

impl Expression {
    /// For each part that never has a value, or has the same value for every request, the reason and the remedy.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Doubts::default();
        doubts.read(&self.node);
        doubts.found
    }

    /// The same for an expression that is a condition.
    pub fn doubts_of_condition(&self) -> Vec<String> {
        let mut doubts = Doubts::default();
        doubts.read_condition(&self.node);
        doubts.found
    }
}

#[derive(Default)]
struct Doubts {
    found: Vec<String>,
    /// Of each enclosing loop, whether its variable is a descriptor.
    over_descriptors: Vec<bool>,
}

impl Doubts {
    fn read(&mut self, node: &Node) {
        match member_of_entry(node) {
            Some(Member { descriptor, keys }) if keys.len() > 1 => {
                let (entry, member, name) = (keys[0], keys[1], keys.join("."));
                self.found.push(format!(
                    "the entry {entry:?} is a text and has no {member:?}, so that this never has a value; write \
                     descriptors[{descriptor}][{name:?}] for the entry of that name"
                ));
            }
            Some(Member { keys, .. }) if keys == [""] => {
                self.found.push("no entry has an empty key; write the key of one".to_owned());
            }
            Some(_) => {}
            None => self.read_parts(node),
        }
    }

    fn read_parts(&mut self, node: &Node) {
        match node {
            Node::And(nodes) | Node::Or(nodes) => nodes.iter().for_each(|node| self.read_condition(node)),
            Node::Not(of) => self.read_condition(of),
            Node::Conditional(parts) => {
                let [condition, first, second] = &**parts;
                self.read_condition(condition);
                self.read(first);
                self.read(second);
            }
            Node::Loop(each) => {
                self.read(&each.over);
                self.over_descriptors.truncate(each.variable);
                self.over_descriptors.push(matches!(each.over, Node::Descriptors));
                self.read_condition(&each.predicate);
                each.item.iter().for_each(|item| self.read(item));
            }
            Node::Binary(operator, sides) => {
                let (left, right) = &**sides;
                self.compare(*operator, left, right);
                self.read(left);
                self.read(right);
            }
            _ => node.children().into_iter().for_each(|child| self.read(child)),
        }
    }

    /// Reads a part that has to be true or false.
    fn read_condition(&mut self, node: &Node) {
        let text = match node {
            Node::Text(text) => Some(format!("{text:?} is a text, and neither true nor false")),
            Node::LimitName | Node::LimitId => Some("the limit's name is a text".to_owned()),
            Node::Null => Some("null is neither true nor false".to_owned()),
            _ if number(node).is_some() => Some("a number is neither true nor false".to_owned()),
            _ => self.entry(node).map(|key| format!("the entry {key:?} is a text")),
        };
        if let Some(text) = text {
            self.found.push(format!("{text}, so that this never holds; compare it, as in `… == \"value\"`"));
        }
        self.read(node);
    }

    /// Doubts an entry beside a number or a boolean.
    fn compare(&mut self, operator: Operator, left: &Node, right: &Node) {
        let literal = |node: &Node| match node {
            Node::Bool(value) => Some((value.to_string(), false)),
            node => number(node).map(|number| (number, true)),
        };
        let literals = match right {
            Node::List(items) if operator == Operator::In => items.iter().find_map(literal),
            _ if operator == Operator::In => None,
            _ => literal(right),
        };
        let found = match (self.entry(left), literals) {
            (Some(entry), Some(literal)) => Some((entry, literal)),
            _ if operator == Operator::In => None,
            _ => self.entry(right).zip(literal(left)),
        };
        let Some((key, (literal, is_number))) = found else { return };
        let result = match operator {
            Operator::Equal | Operator::In => format!("never equals {literal}"),
            Operator::Unequal => format!("always differs from {literal}"),
            _ => format!("has no value together with {literal}"),
        };
        let remedy = match operator {
            Operator::Equal | Operator::Unequal | Operator::In if is_number => {
                format!("write {literal:?} in quotes, or int(…) around the entry")
            }
            _ if is_number => "write int(…) around the entry".to_owned(),
            _ => format!("write {literal:?} in quotes"),
        };
        self.found.push(format!("the entry {key:?} is a text and {result}; {remedy}"));
    }

    /// The key, if the node is an entry of a descriptor.
    fn entry<'n>(&self, node: &'n Node) -> Option<&'n str> {
        let (of, key) = match node {
            Node::Entry { key, .. } => return Some(key),
            Node::Select(of, key) => (&**of, &**key),
            Node::Index(sides) => match &**sides {
                (of, Node::Text(key)) => (of, &**key),
                _ => return None,
            },
            _ => return None,
        };
        match of {
            Node::Variable(variable) if self.over_descriptors.get(*variable) == Some(&true) => Some(key),
            _ => None,
        }
    }
}

/// A number as a text.
fn number(node: &Node) -> Option<String> {
    match node {
        Node::Int(number) => Some(number.to_string()),
        Node::Uint(number) => Some(number.to_string()),
        Node::Double(number) => Some(number.to_string()),
        Node::Negative(of) => number(of).map(|number| format!("-{number}")),
        _ => None,
    }
}

/// A member of a member, and so on, of a descriptor.
struct Member<'n> {
    descriptor: usize,
    /// The key of the entry, and the names after it.
    keys: Vec<&'n str>,
}

fn member_of_entry(node: &Node) -> Option<Member<'_>> {
    let (of, key) = match node {
        Node::Entry { descriptor, key } => {
            return Some(Member { descriptor: *descriptor, keys: vec![key] });
        }
        Node::Select(of, key) | Node::Has(of, key) => (&**of, &**key),
        Node::Index(sides) => match &**sides {
            (of, Node::Text(key)) => (of, &**key),
            _ => return None,
        },
        _ => return None,
    };
    let mut member = member_of_entry(of)?;
    member.keys.push(key);
    Some(member)
}
