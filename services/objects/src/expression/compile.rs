//! From the parser's tree to ours: names of functions are looked up, macros are told apart, depth is limited.

use std::panic::catch_unwind;

use cel::Env;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SourceInfo, operators};

use super::functions::Function;
use super::macros::{Macro, MacroKind};
use super::operators::Operator;
use super::value::Value;
use super::{ExpressionError, MAXIMUM_BYTES, MAXIMUM_DEPTH};

/// One step of an expression, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Letters before it.
    pub(super) at: u32,
    pub(super) op: Op,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Op {
    Literal(Literal),
    Name(String),
    Select {
        of: Box<Node>,
        field: String,
        how: Access,
    },
    Index {
        of: Box<Node>,
        key: Box<Node>,
        how: Access,
    },
    /// Items; one that is optional is left out where it has no value.
    List(Vec<(Node, bool)>),
    /// Keys, values, and whether an entry without a value is left out.
    Map(Vec<(Node, Node, bool)>),
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    If(Box<Node>, Box<Node>, Box<Node>),
    Operator(Operator, Vec<Node>),
    Call(Function, Vec<Node>),
    Macro(Box<Macro>),
}

/// What happens where there is no such field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// It is an error.
    Required,
    /// It is asked whether there is one.
    Test,
    /// It gives an optional value.
    Optional,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
}

impl Literal {
    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Double(value) => Value::Double(*value),
            Self::Text(text) => Value::borrowed(text),
        }
    }
}

type Compiled = Result<Node, ExpressionError>;

pub(super) fn compile(text: &str) -> Compiled {
    if text.len() > MAXIMUM_BYTES {
        let message = format!("{} bytes; an expression has at most {MAXIMUM_BYTES}", text.len());
        return Err(error(1, 1, message));
    }
    if text.trim().is_empty() {
        return Err(error(1, 1, "the expression is empty"));
    }
    check_nesting(text)?;
    // The parser is another's: what it does with hostile text is not promised.
    let parsed = catch_unwind(|| Env::default().parser().parse_with_source_info(text));
    let parsed = parsed.map_err(|_| error(1, 1, "the parser cannot read it"))?;
    let (tree, source) = parsed.map_err(|errors| {
        let first = errors.errors.into_iter().next();
        first.map_or_else(
            || error(1, 1, "not an expression"),
            |first| {
                let place = |value: isize| u32::try_from(value).unwrap_or(0).max(1);
                error(place(first.pos.0), place(first.pos.1), first.msg)
            },
        )
    })?;
    Compiler { text, source: &source }.node(&tree, 0)
}

/// Refuses what would nest the parser's own calls too deeply, before it is called: brackets, and conditions one behind the other.
fn check_nesting(text: &str) -> Result<(), ExpressionError> {
    let (mut depth, mut before) = (0_usize, ' ');
    for letter in text.chars() {
        match letter {
            '(' | '[' | '{' => depth = depth.saturating_add(1),
            // Not the sign of what is optional.
            '?' if !matches!(before, '.' | '[' | '{' | ',') => depth = depth.saturating_add(1),
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = letter;
        if depth > MAXIMUM_DEPTH {
            return Err(too_deep(1, 1));
        }
    }
    Ok(())
}

fn too_deep(line: u32, column: u32) -> ExpressionError {
    error(line, column, format!("nested more than {MAXIMUM_DEPTH} deep"))
}

fn error(line: u32, column: u32, message: impl Into<String>) -> ExpressionError {
    ExpressionError { line, column, message: message.into() }
}

struct Compiler<'t> {
    text: &'t str,
    source: &'t SourceInfo,
}

impl Compiler<'_> {
    fn node(&self, tree: &IdedExpr, depth: usize) -> Compiled {
        if depth > MAXIMUM_DEPTH {
            let (line, column) = self.place(tree);
            return Err(too_deep(line, column));
        }
        let depth = depth.saturating_add(1);
        let op = match &tree.expr {
            Expr::Literal(literal) => Op::Literal(self.literal(tree, literal)?),
            Expr::Ident(name) => Op::Name(name.clone()),
            Expr::Select(select) => Op::Select {
                of: self.boxed(&select.operand, depth)?,
                field: select.field.clone(),
                how: if select.test { Access::Test } else { Access::Required },
            },
            Expr::List(list) => {
                let items = list.elements.iter().enumerate();
                let items = items.map(|(place, item)| {
                    Ok((self.node(item, depth)?, list.optional_indices.contains(&place)))
                });
                Op::List(items.collect::<Result<_, _>>()?)
            }
            Expr::Map(map) => {
                let mut entries = Vec::new();
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else {
                        return Err(self.wrong(tree, "not a mapping"));
                    };
                    let (key, value) = (self.node(&entry.key, depth)?, self.node(&entry.value, depth)?);
                    entries.push((key, value, entry.optional));
                }
                Op::Map(entries)
            }
            Expr::Call(call) => self.call(tree, call, depth)?,
            Expr::Struct(_) => return Err(self.wrong(tree, "messages cannot be made here")),
            Expr::Comprehension(_) | Expr::Unspecified => return Err(self.wrong(tree, "not an expression")),
        };
        Ok(Node { at: self.letters_before(tree), op })
    }

    fn boxed(&self, tree: &IdedExpr, depth: usize) -> Result<Box<Node>, ExpressionError> {
        self.node(tree, depth).map(Box::new)
    }

    fn nodes<'e>(
        &self,
        trees: impl IntoIterator<Item = &'e IdedExpr>,
        depth: usize,
    ) -> Result<Vec<Node>, ExpressionError> {
        trees.into_iter().map(|tree| self.node(tree, depth)).collect()
    }

    fn literal(&self, tree: &IdedExpr, literal: &LiteralValue) -> Result<Literal, ExpressionError> {
        Ok(match literal {
            LiteralValue::Null => Literal::Null,
            LiteralValue::Boolean(value) => Literal::Bool(*value.inner()),
            LiteralValue::Int(value) => Literal::Int(*value.inner()),
            LiteralValue::UInt(value) => Literal::Uint(*value.inner()),
            LiteralValue::Double(value) => Literal::Double(*value.inner()),
            LiteralValue::String(text) => Literal::Text(text.inner().to_owned()),
            LiteralValue::Bytes(_) => return Err(self.wrong(tree, "bytes are not supported")),
        })
    }

    fn call(&self, tree: &IdedExpr, call: &CallExpr, depth: usize) -> Result<Op, ExpressionError> {
        if let (None, args) = (&call.target, call.args.as_slice())
            && let Some(op) = self.operator(&call.func_name, args, depth)?
        {
            return Ok(op);
        }
        if call.target.is_none() && call.func_name == operators::HAS {
            return self.has(tree, &call.args, depth);
        }
        if let (Some(target), Some(kind)) = (&call.target, MacroKind::of(&call.func_name, call.args.len())) {
            return self.macro_of(kind, target, &call.args, depth);
        }
        // `optional.of(x)` and `sets.contains(x, y)` are functions whose names have two parts.
        if let Some(IdedExpr { expr: Expr::Ident(space), .. }) = call.target.as_deref()
            && let Some(function) = Function::of_space(space, &call.func_name)
        {
            self.check_count(tree, function, call.args.len())?;
            return Ok(Op::Call(function, self.nodes(&call.args, depth)?));
        }
        let Some(function) = Function::find(&call.func_name, call.target.is_some()) else {
            return Err(self.wrong(tree, format!("there is no function '{}' here", call.func_name)));
        };
        let all = call.target.as_deref().into_iter().chain(&call.args);
        let all = self.nodes(all, depth)?;
        self.check_count(tree, function, all.len())?;
        Ok(Op::Call(function, all))
    }

    fn operator(&self, name: &str, args: &[IdedExpr], depth: usize) -> Result<Option<Op>, ExpressionError> {
        let field_of = |field: &IdedExpr| match &field.expr {
            Expr::Literal(LiteralValue::String(field)) => Some(field.inner().to_owned()),
            _ => None,
        };
        Ok(Some(match (name, args) {
            (operators::CONDITIONAL, [test, then, otherwise]) => {
                Op::If(self.boxed(test, depth)?, self.boxed(then, depth)?, self.boxed(otherwise, depth)?)
            }
            (operators::LOGICAL_AND, [left, right]) => {
                Op::And(self.boxed(left, depth)?, self.boxed(right, depth)?)
            }
            (operators::LOGICAL_OR, [left, right]) => {
                Op::Or(self.boxed(left, depth)?, self.boxed(right, depth)?)
            }
            (operators::LOGICAL_NOT, [value]) => Op::Not(self.boxed(value, depth)?),
            (operators::INDEX, [of, key]) => {
                Op::Index { of: self.boxed(of, depth)?, key: self.boxed(key, depth)?, how: Access::Required }
            }
            (operators::OPT_INDEX, [of, key]) => {
                Op::Index { of: self.boxed(of, depth)?, key: self.boxed(key, depth)?, how: Access::Optional }
            }
            (operators::OPT_SELECT, [of, field]) => {
                let Some(field) = field_of(field) else { return Ok(None) };
                Op::Select { of: self.boxed(of, depth)?, field, how: Access::Optional }
            }
            _ => {
                let Some(operator) = Operator::of(name, args.len()) else { return Ok(None) };
                Op::Operator(operator, self.nodes(args, depth)?)
            }
        }))
    }

    /// `has(a.b)` asks for the field `b` of `a`.
    fn has(&self, tree: &IdedExpr, args: &[IdedExpr], depth: usize) -> Result<Op, ExpressionError> {
        let advice = "has() takes a field, such as has(status.phase)";
        match args {
            [IdedExpr { expr: Expr::Select(select), .. }] if !select.test => Ok(Op::Select {
                of: self.boxed(&select.operand, depth)?,
                field: select.field.clone(),
                how: Access::Test,
            }),
            // The top-level keys are variables, too.
            [IdedExpr { id, expr: Expr::Ident(name) }] => {
                let whole = IdedExpr { id: *id, expr: Expr::Ident("self".to_owned()) };
                Ok(Op::Select { of: self.boxed(&whole, depth)?, field: name.clone(), how: Access::Test })
            }
            _ => Err(self.wrong(tree, advice)),
        }
    }

    fn macro_of(
        &self,
        kind: MacroKind,
        target: &IdedExpr,
        args: &[IdedExpr],
        depth: usize,
    ) -> Result<Op, ExpressionError> {
        let (variable, bodies) = match args {
            [variable, bodies @ ..] => (variable, bodies),
            [] => return Err(self.wrong(target, "a variable is missing")),
        };
        let Expr::Ident(name) = &variable.expr else {
            return Err(self.wrong(variable, "a variable's name is expected here"));
        };
        let range = self.node(target, depth)?;
        let bodies = self.nodes(bodies, depth)?;
        Ok(Op::Macro(Box::new(Macro { kind, range, variable: name.clone(), bodies })))
    }

    fn check_count(&self, tree: &IdedExpr, function: Function, count: usize) -> Result<(), ExpressionError> {
        if function.takes(count) {
            return Ok(());
        }
        Err(self.wrong(tree, format!("{} has another number of arguments", function.name())))
    }

    fn wrong(&self, tree: &IdedExpr, message: impl Into<String>) -> ExpressionError {
        let (line, column) = self.place(tree);
        error(line, column, message)
    }

    fn letters_before(&self, tree: &IdedExpr) -> u32 {
        let start = self.source.offset_for(tree.id).map_or(0, |(start, _)| start);
        let bytes = usize::try_from(start).unwrap_or(0);
        let before = self.text.get(..bytes).map(|before| before.chars().count());
        before.and_then(|letters| u32::try_from(letters).ok()).unwrap_or(start)
    }

    /// Line and column, from 1.
    fn place(&self, tree: &IdedExpr) -> (u32, u32) {
        let before = usize::try_from(self.letters_before(tree)).unwrap_or(0);
        let (mut line, mut column) = (1_u32, 1_u32);
        for letter in self.text.chars().take(before) {
            if letter == '\n' {
                (line, column) = (line.saturating_add(1), 1);
            } else {
                column = column.saturating_add(1);
            }
        }
        (line, column)
    }
}
