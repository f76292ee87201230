//! A JSON reader with positions, for files that start with `{`.

use std::collections::BTreeMap;

use super::{Document, Duplicate, Node, Value, YamlError};

/// Reads one value after the other from a text.
pub(super) struct Reader<'a> {
    text: &'a str,
    offset: usize,
    line: u32,
    column: u32,
    depth: usize,
    path: Vec<String>,
    duplicates: Vec<Duplicate>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(text: &'a str, depth: usize) -> Self {
        Self { text, offset: 0, line: 1, column: 1, depth, path: Vec::new(), duplicates: Vec::new() }
    }

    pub(super) fn at_end(&self) -> bool {
        self.offset >= self.text.len()
    }

    /// Offset in bytes and number of lines before the current one.
    pub(super) const fn mark(&self) -> (usize, u32) {
        (self.offset, self.line.saturating_sub(1))
    }

    pub(super) fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\r' | '\n')) {
            self.bump();
        }
    }

    pub(super) fn document(&mut self, nodes_left: &mut usize) -> Result<Document, YamlError> {
        self.path.clear();
        let root = self.value(0, nodes_left)?;
        let duplicates = std::mem::take(&mut self.duplicates);
        Ok(Document { root, duplicates, false_separators: Vec::new() })
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.offset..).and_then(|rest| rest.chars().next())
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.offset += next.len_utf8();
        if next == '\n' {
            self.line = self.line.saturating_add(1);
            self.column = 1;
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(next)
    }

    fn error(&self, message: impl Into<String>) -> YamlError {
        YamlError::new(self.line, self.column, message)
    }

    fn unexpected(&self, wanted: &str) -> YamlError {
        match self.peek() {
            Some(found) => self.error(format!("not valid JSON: '{found}' where {wanted} is expected")),
            None => self.error(format!("not valid JSON: the text ends where {wanted} is expected")),
        }
    }

    fn value(&mut self, depth: usize, nodes_left: &mut usize) -> Result<Node, YamlError> {
        self.skip_whitespace();
        *nodes_left = nodes_left.checked_sub(1).ok_or_else(|| self.error("too many values"))?;
        let (line, column) = (self.line, self.column);
        let value = match self.peek() {
            Some('{' | '[') if depth >= self.depth => {
                return Err(self.error(format!("nested deeper than {} levels", self.depth)));
            }
            Some('{') => self.object(depth, nodes_left)?,
            Some('[') => self.array(depth, nodes_left)?,
            Some('"') => Value::String(self.string()?),
            Some('-' | '0'..='9') => self.number()?,
            Some('t') => self.word("true", Value::Bool(true))?,
            Some('f') => self.word("false", Value::Bool(false))?,
            Some('n') => self.word("null", Value::Null)?,
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Node { value, line, column })
    }

    fn object(&mut self, depth: usize, nodes_left: &mut usize) -> Result<Value, YamlError> {
        self.bump();
        let mut entries: Vec<(Node, Node)> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        self.skip_whitespace();
        if self.peek() == Some('}') {
            self.bump();
            return Ok(Value::Mapping(entries));
        }
        loop {
            self.skip_whitespace();
            let (line, column) = (self.line, self.column);
            if self.peek() != Some('"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let name = self.string()?;
            self.skip_whitespace();
            if self.peek() != Some(':') {
                return Err(self.unexpected("':'"));
            }
            self.bump();
            self.path.push(name.clone());
            let value = self.value(depth + 1, nodes_left)?;
            self.path.pop();
            let key = Node { value: Value::String(name.clone()), line, column };
            if let Some(&place) = places.get(&name) {
                if let Some(entry) = entries.get_mut(place) {
                    let first_line = entry.0.line;
                    let path = self.path.join(".").replace(".[", "[");
                    self.duplicates.push(Duplicate { path, key: name, line, column, first_line });
                    *entry = (key, value);
                }
            } else {
                places.insert(name, entries.len());
                entries.push((key, value));
            }
            if self.closes('}')? {
                return Ok(Value::Mapping(entries));
            }
        }
    }

    fn array(&mut self, depth: usize, nodes_left: &mut usize) -> Result<Value, YamlError> {
        self.bump();
        let mut items = Vec::new();
        self.skip_whitespace();
        if self.peek() == Some(']') {
            self.bump();
            return Ok(Value::Sequence(items));
        }
        loop {
            self.path.push(format!("[{}]", items.len()));
            items.push(self.value(depth + 1, nodes_left)?);
            self.path.pop();
            if self.closes(']')? {
                return Ok(Value::Sequence(items));
            }
        }
    }

    /// Reads a comma (`false`) or the closing bracket (`true`).
    fn closes(&mut self, bracket: char) -> Result<bool, YamlError> {
        self.skip_whitespace();
        match self.peek() {
            Some(',') => {
                self.bump();
                Ok(false)
            }
            Some(found) if found == bracket => {
                self.bump();
                Ok(true)
            }
            _ => Err(self.unexpected(&format!("',' or '{bracket}'"))),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, YamlError> {
        for expected in word.chars() {
            if self.peek() != Some(expected) {
                return Err(self.unexpected(word));
            }
            self.bump();
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, YamlError> {
        let start = self.offset;
        while matches!(self.peek(), Some('0'..='9' | '-' | '+' | '.' | 'e' | 'E')) {
            self.bump();
        }
        let text = self.text.get(start..self.offset).unwrap_or_default();
        let number: serde_json::Number = serde_json::from_str(text)
            .map_err(|_| self.error(format!("not valid JSON: the number '{text}'")))?;
        Ok(if let Some(value) = number.as_i64() {
            Value::Int(value)
        } else if let Some(value) = number.as_u64() {
            Value::UInt(value)
        } else {
            Value::Float(number.as_f64().unwrap_or_default())
        })
    }

    fn string(&mut self) -> Result<String, YamlError> {
        self.bump();
        let mut text = String::new();
        loop {
            match self.peek() {
                Some('"') => {
                    self.bump();
                    return Ok(text);
                }
                Some('\\') => {
                    self.bump();
                    text.push(self.escape()?);
                }
                Some(other) if other >= ' ' => {
                    text.push(other);
                    self.bump();
                }
                Some(_) => {
                    return Err(self.error("not valid JSON: a line break or control character inside text"));
                }
                None => return Err(self.unexpected("the closing quote")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, YamlError> {
        let escaped = match self.peek() {
            Some(same @ ('"' | '\\' | '/')) => same,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                self.bump();
                return self.unicode();
            }
            _ => return Err(self.unexpected("an escape such as \\n")),
        };
        self.bump();
        Ok(escaped)
    }

    /// Four hexadecimal digits, or two such escapes that form a pair; half a pair becomes U+FFFD.
    fn unicode(&mut self) -> Result<char, YamlError> {
        let first = self.hex4()?;
        if !(0xD800..0xE000).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let pairs = self.text.get(self.offset..).is_some_and(|rest| rest.starts_with("\\u"));
        if first >= 0xDC00 || !pairs {
            return Ok(char::REPLACEMENT_CHARACTER);
        }
        let before = (self.offset, self.column);
        self.bump();
        self.bump();
        let second = self.hex4()?;
        if (0xDC00..0xE000).contains(&second) {
            let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        (self.offset, self.column) = before;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex4(&mut self) -> Result<u32, YamlError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|c| c.to_digit(16));
            let Some(digit) = digit else { return Err(self.unexpected("four hexadecimal digits")) };
            code = code * 16 + digit;
            self.bump();
        }
        Ok(code)
    }
}
