//! Parts of a valid expression that never have a value.

use crate::{Expression, node::Node};

impl Expression {
    /// For each part that never has a value, the reason and the remedy.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        doubt(&self.node, &mut doubts);
        doubts
    }
}

fn doubt(node: &Node, doubts: &mut Vec<String>) {
    match member_of_entry(node) {
        Some(Member { descriptor, keys }) if keys.len() > 1 => {
            let (entry, member, name) = (keys[0], keys[1], keys.join("."));
            doubts.push(format!(
                "the entry {entry:?} is a text and has no {member:?}, so that this never has a value; write \
                 descriptors[{descriptor}][{name:?}] for the entry of that name"
            ));
        }
        Some(Member { keys, .. }) if keys == [""] => {
            doubts.push("no entry has an empty key; write the key of one".to_owned());
        }
        Some(_) => {}
        None => node.children().into_iter().for_each(|child| doubt(child, doubts)),
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
