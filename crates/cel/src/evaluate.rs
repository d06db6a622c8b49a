//! Evaluation: a value, or the reason why there is none.
//!
//! `&&` and `||` are as in CEL: a side that decides the result makes an error of the other side irrelevant.

use crate::{
    COST_MAX, Descriptors, EvaluationError as Error, LimitNames, Value,
    functions::{Function, call},
    node::{Loop, LoopKind, Node, Operator},
    value::{items, pairs},
};
use smallvec::SmallVec;
use std::{borrow::Cow, cmp::Ordering};

pub(crate) fn evaluate<'t>(
    node: &'t Node,
    descriptors: &dyn Descriptors<'t>,
    limit: LimitNames<'t>,
) -> Result<Value<'t>, Error> {
    Evaluation { descriptors, limit, variables: SmallVec::new(), cost: 0 }.value(node)
}

pub(crate) struct Evaluation<'e, 't> {
    descriptors: &'e dyn Descriptors<'t>,
    limit: LimitNames<'t>,
    /// Variables of the enclosing loops, the outermost first.
    variables: SmallVec<[Value<'t>; 2]>,
    cost: u32,
}

fn text(text: Option<&str>) -> Value<'_> {
    text.map_or(Value::Null, |text| Value::Text(Cow::Borrowed(text)))
}

impl<'t> Evaluation<'_, 't> {
    pub(crate) fn value(&mut self, node: &'t Node) -> Result<Value<'t>, Error> {
        self.spend(1)?;
        Ok(match node {
            Node::Null => Value::Null,
            Node::Bool(value) => Value::Bool(*value),
            Node::Int(number) => Value::Int(*number),
            Node::Uint(number) => Value::Uint(*number),
            Node::Double(number) => Value::Double(*number),
            Node::Text(known) => text(Some(known)),
            Node::Descriptors => Value::Descriptors,
            Node::Entry { descriptor, key } => match self.descriptors.value(*descriptor, key) {
                Some(value) => text(Some(value)),
                None if *descriptor < self.descriptors.len() => return Err(Error::NoSuchKey),
                None => return Err(Error::NoSuchItem),
            },
            Node::LimitName => text(self.limit.name),
            Node::LimitId => text(self.limit.id),
            Node::Variable(variable) => self.variables[*variable].clone(),
            Node::Select(of, key) => {
                let of = self.value(of)?;
                self.select(&of, key)?
            }
            Node::Index(sides) => {
                let (of, index) = (self.value(&sides.0)?, self.value(&sides.1)?);
                self.index(&of, &index)?
            }
            Node::Has(of, key) => {
                let of = self.value(of)?;
                match self.select(&of, key) {
                    Ok(_) => Value::Bool(true),
                    Err(Error::NoSuchKey) => Value::Bool(false),
                    Err(error) => return Err(error),
                }
            }
            Node::Not(of) => Value::Bool(!boolean(self.value(of))?),
            Node::Negative(of) => match self.value(of)? {
                Value::Int(number) => Value::Int(number.checked_neg().ok_or(Error::Number)?),
                Value::Double(number) => Value::Double(-number),
                _ => return Err(Error::Type),
            },
            Node::And(nodes) => self.all_are(nodes, true)?,
            Node::Or(nodes) => self.all_are(nodes, false)?,
            Node::Binary(operator, sides) => {
                let (left, right) = (self.value(&sides.0)?, self.value(&sides.1)?);
                self.binary(*operator, left, right)?
            }
            Node::Conditional(parts) => {
                let [condition, first, second] = &**parts;
                let chosen = if boolean(self.value(condition))? { first } else { second };
                self.value(chosen)?
            }
            Node::List(nodes) => {
                let items: Result<Vec<_>, _> = nodes.iter().map(|node| self.value(node)).collect();
                Value::List(items?.into())
            }
            Node::Map(nodes) => self.map(nodes)?,
            Node::Call(function, arguments) => self.call(*function, arguments)?,
            Node::Matches(of, pattern) => match self.value(of)? {
                Value::Text(text) => {
                    self.spend(text.len() as u32)?;
                    Value::Bool(pattern.is_match(text.as_bytes()))
                }
                _ => return Err(Error::Type),
            },
            Node::Loop(each) => self.each(each)?,
        })
    }

    fn call(&mut self, function: Function, arguments: &'t [Node]) -> Result<Value<'t>, Error> {
        let values: Result<SmallVec<[_; 2]>, _> = arguments.iter().map(|node| self.value(node)).collect();
        let values = values?;
        for value in &values {
            self.spend_on(value)?;
        }
        call(function, &values, self.descriptors)
    }

    /// Counts steps.
    fn spend(&mut self, steps: u32) -> Result<(), Error> {
        self.cost = self.cost.saturating_add(steps);
        if self.cost > COST_MAX { Err(Error::Cost) } else { Ok(()) }
    }

    /// Counts the steps of reading the whole value.
    fn spend_on(&mut self, value: &Value<'t>) -> Result<(), Error> {
        self.spend(match value {
            Value::Text(text) => text.len() as u32 / 64,
            Value::List(items) => items.len() as u32,
            Value::Map(pairs) => pairs.len() as u32,
            Value::Descriptors => self.descriptors.len() as u32,
            // Entries are compared with each other, for equal keys.
            Value::Descriptor(descriptor) => (self.descriptors.entries(*descriptor) as u32).saturating_pow(2),
            _ => 0,
        })
    }

    /// `&&` if `neutral` is true, `||` if false: the first other value, else `neutral`. An error counts only if there is no other value.
    fn all_are(&mut self, nodes: &'t [Node], neutral: bool) -> Result<Value<'t>, Error> {
        let mut first_error = None;
        for node in nodes {
            match boolean(self.value(node)) {
                Ok(value) if value != neutral => return Ok(Value::Bool(value)),
                Ok(_) => {}
                Err(Error::Cost) => return Err(Error::Cost),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(Value::Bool(neutral)), Err)
    }

    fn select(&mut self, of: &Value<'t>, key: &str) -> Result<Value<'t>, Error> {
        match of {
            Value::Descriptor(descriptor) => self
                .descriptors
                .value(*descriptor, key)
                .map(|value| text(Some(value)))
                .ok_or(Error::NoSuchKey),
            Value::Map(pairs) => {
                self.spend_on(of)?;
                let pair = pairs.iter().find(|pair| matches!(&pair.0, Value::Text(text) if text == key));
                pair.map(|pair| pair.1.clone()).ok_or(Error::NoSuchKey)
            }
            _ => Err(Error::Type),
        }
    }

    fn index(&mut self, of: &Value<'t>, index: &Value<'t>) -> Result<Value<'t>, Error> {
        match (of, index) {
            (Value::Map(_) | Value::Descriptor(_), Value::Text(key)) => self.select(of, key),
            (Value::Map(pairs), _) => {
                for (key, value) in &**pairs {
                    if self.equal(key, index)? {
                        return Ok(value.clone());
                    }
                }
                Err(Error::NoSuchKey)
            }
            (Value::Descriptor(_), _) => Err(Error::NoSuchKey),
            (Value::List(_) | Value::Descriptors, _) => {
                let at = match index {
                    Value::Int(at) => usize::try_from(*at),
                    Value::Uint(at) => usize::try_from(*at),
                    // A whole number, however it is written.
                    Value::Double(at) if at.fract() == 0.0 && *at >= 0.0 => Ok(*at as usize),
                    _ => return Err(Error::Type),
                };
                let at = at.map_err(|_| Error::NoSuchItem)?;
                match of {
                    Value::List(items) => items.get(at).cloned().ok_or(Error::NoSuchItem),
                    _ if at < self.descriptors.len() => Ok(Value::Descriptor(at)),
                    _ => Err(Error::NoSuchItem),
                }
            }
            _ => Err(Error::Type),
        }
    }

    fn map(&mut self, nodes: &'t [(Node, Node)]) -> Result<Value<'t>, Error> {
        let mut pairs: Vec<(Value<'t>, Value<'t>)> = Vec::with_capacity(nodes.len());
        for (key, value) in nodes {
            let (key, value) = (self.value(key)?, self.value(value)?);
            let mut is_new = true;
            for pair in &mut pairs {
                if self.equal(&pair.0, &key)? {
                    pair.1 = value.clone();
                    is_new = false;
                }
            }
            if is_new {
                pairs.push((key, value));
            }
        }
        Ok(Value::Map(pairs.into()))
    }

    fn each(&mut self, each: &'t Loop) -> Result<Value<'t>, Error> {
        let over = self.value(&each.over)?;
        if !over.is_list() && !over.is_map() {
            return Err(Error::Type);
        }
        self.spend_on(&over)?;
        let (mut selected, mut list, mut first_error) = (0, Vec::new(), None);
        for item in items(&over, self.descriptors) {
            self.variables.truncate(each.variable);
            self.variables.push(item.clone());
            let holds = boolean(self.value(&each.predicate));
            match (each.kind, holds) {
                (_, Err(Error::Cost)) => return Err(Error::Cost),
                (LoopKind::All, Ok(false)) => return Ok(Value::Bool(false)),
                (LoopKind::Exists, Ok(true)) => return Ok(Value::Bool(true)),
                // Another item may decide.
                (LoopKind::All | LoopKind::Exists, Err(error)) => first_error = first_error.or(Some(error)),
                (LoopKind::ExistsOne | LoopKind::List, Err(error)) => return Err(error),
                (LoopKind::ExistsOne, Ok(true)) => selected += 1,
                (LoopKind::List, Ok(true)) => list.push(match &each.item {
                    Some(made) => self.value(made)?,
                    None => item,
                }),
                (_, Ok(_)) => {}
            }
        }
        self.variables.truncate(each.variable);
        match (each.kind, first_error) {
            (_, Some(error)) => Err(error),
            (LoopKind::All, None) => Ok(Value::Bool(true)),
            (LoopKind::Exists, None) => Ok(Value::Bool(false)),
            (LoopKind::ExistsOne, None) => Ok(Value::Bool(selected == 1)),
            (LoopKind::List, None) => Ok(Value::List(list.into())),
        }
    }

    fn binary(&mut self, operator: Operator, left: Value<'t>, right: Value<'t>) -> Result<Value<'t>, Error> {
        let order = |accepts: fn(Ordering) -> bool| Ok(Value::Bool(left.order(&right)?.is_some_and(accepts)));
        match operator {
            Operator::Equal => self.equal(&left, &right).map(Value::Bool),
            Operator::Unequal => self.equal(&left, &right).map(|equal| Value::Bool(!equal)),
            Operator::Less => order(Ordering::is_lt),
            Operator::LessOrEqual => order(Ordering::is_le),
            Operator::Greater => order(Ordering::is_gt),
            Operator::GreaterOrEqual => order(Ordering::is_ge),
            Operator::In => self.contains(&right, &left).map(Value::Bool),
            Operator::Plus => {
                self.spend_on(&left)?;
                self.spend_on(&right)?;
                match (left, right) {
                    (Value::Text(left), Value::Text(right)) => Ok(Value::Text(left + right)),
                    (left, right) if left.is_list() && right.is_list() => {
                        let mut all = items(&left, self.descriptors);
                        all.extend(items(&right, self.descriptors));
                        Ok(Value::List(all.into()))
                    }
                    (left, right) => arithmetic(operator, &left, &right),
                }
            }
            _ => arithmetic(operator, &left, &right),
        }
    }

    /// Whether the list has the item, or the map the key.
    fn contains(&mut self, of: &Value<'t>, item: &Value<'t>) -> Result<bool, Error> {
        match (of, item) {
            (Value::Descriptor(descriptor), Value::Text(key)) => {
                Ok(self.descriptors.value(*descriptor, key).is_some())
            }
            _ if !of.is_list() && !of.is_map() => Err(Error::Type),
            _ => {
                self.spend_on(of)?;
                for one in items(of, self.descriptors) {
                    if self.equal(&one, item)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// Whether two values are equal; values of different types are not.
    fn equal(&mut self, one: &Value<'t>, other: &Value<'t>) -> Result<bool, Error> {
        self.spend(1)?;
        match (one, other) {
            (Value::Null, Value::Null) => Ok(true),
            (Value::Bool(one), Value::Bool(other)) => Ok(one == other),
            (Value::Text(one), Value::Text(other)) => Ok(one == other),
            (Value::List(_) | Value::Descriptors, Value::List(_) | Value::Descriptors) => {
                self.spend_on(one)?;
                self.spend_on(other)?;
                let (one, other) = (items(one, self.descriptors), items(other, self.descriptors));
                let mut equal = one.len() == other.len();
                for (one, other) in one.iter().zip(&other) {
                    equal = equal && self.equal(one, other)?;
                }
                Ok(equal)
            }
            (Value::Map(_) | Value::Descriptor(_), Value::Map(_) | Value::Descriptor(_)) => {
                self.spend_on(one)?;
                self.spend_on(other)?;
                let (one, other) = (pairs(one, self.descriptors), pairs(other, self.descriptors));
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (key, value) in &one {
                    let mut has_equal = false;
                    for (other_key, other_value) in &other {
                        has_equal =
                            has_equal || self.equal(key, other_key)? && self.equal(value, other_value)?;
                    }
                    if !has_equal {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(one.order_of_numbers(other) == Some(Some(Ordering::Equal))),
        }
    }
}

fn boolean(value: Result<Value<'_>, Error>) -> Result<bool, Error> {
    match value? {
        Value::Bool(value) => Ok(value),
        _ => Err(Error::Type),
    }
}

/// The result for two whole numbers of one type; an error if it does not fit the type.
macro_rules! checked {
    ($operator:expr, $left:expr, $right:expr) => {
        match $operator {
            Operator::Plus => $left.checked_add(*$right),
            Operator::Minus => $left.checked_sub(*$right),
            Operator::Times => $left.checked_mul(*$right),
            Operator::Over => $left.checked_div(*$right),
            Operator::Remainder => $left.checked_rem(*$right),
            _ => return Err(Error::Type),
        }
        .ok_or(Error::Number)
    };
}

/// Computes with numbers of one type; a whole number that does not fit is an error.
fn arithmetic<'t>(operator: Operator, left: &Value<'t>, right: &Value<'t>) -> Result<Value<'t>, Error> {
    let value = match (left, right) {
        (Value::Int(left), Value::Int(right)) => Value::Int(checked!(operator, left, right)?),
        (Value::Uint(left), Value::Uint(right)) => Value::Uint(checked!(operator, left, right)?),
        (Value::Double(left), Value::Double(right)) => Value::Double(match operator {
            Operator::Plus => left + right,
            Operator::Minus => left - right,
            Operator::Times => left * right,
            Operator::Over => left / right,
            _ => return Err(Error::Type),
        }),
        _ => return Err(Error::Type),
    };
    Ok(value)
}
