//! From the parser's events to a tree of nodes, with anchors, merge keys and limits.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use super::split::Chunk;
use super::{Document, Duplicate, Node, Value, YamlError, scalar};

/// Reads the one document of a chunk; `None` when it has no content.
pub(super) fn document(
    chunk: &Chunk<'_>,
    depth: usize,
    nodes_left: &mut usize,
) -> Result<Option<Document>, YamlError> {
    let mut builder = Builder::new(chunk.lines_before, depth, nodes_left);
    let mut parser = Parser::new_from_str(chunk.text);
    let mut documents = 0_usize;
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| syntax_error(&error, chunk))?;
        match event {
            Event::DocumentStart(_) if documents > 0 => {
                return Err(builder.error(
                    span.start,
                    "content after the end of the document ('...'); kubectl would drop it, so start it with '---'",
                ));
            }
            Event::DocumentStart(_) => documents += 1,
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            event => builder.event(event, span)?,
        }
    }
    let Builder { root, duplicates, false_separators, .. } = builder;
    Ok(root.map(|root| Document { root, duplicates, false_separators }))
}

fn syntax_error(error: &ScanError, chunk: &Chunk<'_>) -> YamlError {
    let marker = error.marker();
    let line = chunk.text.lines().nth(marker.line().saturating_sub(1)).unwrap_or_default();
    let indentation: String = line.chars().take_while(|c| c.is_whitespace()).collect();
    let hint = if indentation.contains('\t') {
        "; indent with spaces, not tabs"
    } else if error.info().contains("indentation") {
        "; indent the continued lines and closing brackets at least as far as the keys around them"
    } else if chunk.text.contains("{{") {
        "; this looks like a template, which is not rendered"
    } else if chunk.text.lines().any(|line| line.starts_with('%')) {
        "; a '%' directive cannot stand before '---' here, remove it"
    } else {
        ""
    };
    let (line, column) = position(marker, chunk.lines_before);
    YamlError::new(line, column, format!("not valid YAML: {}{hint}", error.info()))
}

fn position(marker: &Marker, lines_before: u32) -> (u32, u32) {
    let line = u32::try_from(marker.line().max(1)).unwrap_or(u32::MAX);
    let column = u32::try_from(marker.col().saturating_add(1)).unwrap_or(u32::MAX);
    (lines_before.saturating_add(line), column)
}

/// A collection that is still being read.
enum Frame {
    Sequence { anchor: usize, start: (u32, u32), items: Vec<Node> },
    Mapping { anchor: usize, start: (u32, u32), entries: Vec<(Key, Node)>, key: Option<Key> },
}

enum Key {
    Name(Node),
    Merge,
}

/// What an anchor stands for, and what repeating it costs.
struct Anchored {
    node: Node,
    nodes: usize,
    height: usize,
}

struct Builder<'a> {
    lines_before: u32,
    depth: usize,
    nodes_left: &'a mut usize,
    stack: Vec<Frame>,
    anchors: BTreeMap<usize, Anchored>,
    duplicates: Vec<Duplicate>,
    false_separators: Vec<(u32, u32)>,
    root: Option<Node>,
}

impl<'a> Builder<'a> {
    fn new(lines_before: u32, depth: usize, nodes_left: &'a mut usize) -> Self {
        Self {
            lines_before,
            depth,
            nodes_left,
            stack: Vec::new(),
            anchors: BTreeMap::new(),
            duplicates: Vec::new(),
            false_separators: Vec::new(),
            root: None,
        }
    }

    fn error(&self, at: Marker, message: impl Into<String>) -> YamlError {
        let (line, column) = position(&at, self.lines_before);
        YamlError::new(line, column, message)
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let start = position(&span.start, self.lines_before);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if self.expects_key() && is_merge(&text, style, tag.as_deref()) {
                    self.spend(1, start)?;
                    self.set_key(Key::Merge);
                    return Ok(());
                }
                if style == ScalarStyle::Plain && ends_as_separator(&text) {
                    self.false_separators.push((start.0, start.1));
                }
                if let Some(message) = line_separator(&text, style) {
                    return Err(YamlError::new(start.0, start.1, message));
                }
                let value = resolve(&text, style, tag.as_deref())
                    .map_err(|message| YamlError::new(start.0, start.1, message))?;
                self.complete(anchor, Node { value, line: start.0, column: start.1 })
            }
            Event::SequenceStart(anchor, _) => {
                self.deeper(1, start)?;
                self.stack.push(Frame::Sequence { anchor, start, items: Vec::new() });
                Ok(())
            }
            Event::MappingStart(anchor, _) => {
                self.deeper(1, start)?;
                self.stack.push(Frame::Mapping { anchor, start, entries: Vec::new(), key: None });
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(id) => self.alias(id, start),
            _ => Ok(()),
        }
    }

    fn close(&mut self) -> Result<(), YamlError> {
        match self.stack.pop() {
            Some(Frame::Sequence { anchor, start, items }) => {
                self.complete(anchor, Node { value: Value::Sequence(items), line: start.0, column: start.1 })
            }
            Some(Frame::Mapping { anchor, start, entries, .. }) => {
                let entries = self.mapping(entries)?;
                self.complete(anchor, Node { value: Value::Mapping(entries), line: start.0, column: start.1 })
            }
            None => Ok(()),
        }
    }

    fn alias(&mut self, id: usize, at: (u32, u32)) -> Result<(), YamlError> {
        let Some(anchored) = self.anchors.get(&id) else {
            return Err(YamlError::new(at.0, at.1, "an alias inside the very value that its anchor marks"));
        };
        let (nodes, height) = (anchored.nodes, anchored.height);
        self.deeper(height, at)?;
        self.spend(nodes, at)?;
        if let Some(node) = self.anchors.get(&id).map(|anchored| anchored.node.clone()) {
            self.attach(node)?;
        }
        Ok(())
    }

    fn complete(&mut self, anchor: usize, node: Node) -> Result<(), YamlError> {
        self.spend(1, (node.line, node.column))?;
        if anchor > 0 {
            let (nodes, height) = measure(&node);
            self.anchors.insert(anchor, Anchored { node: node.clone(), nodes, height });
        }
        self.attach(node)
    }

    /// Puts a finished node where it belongs.
    fn attach(&mut self, node: Node) -> Result<(), YamlError> {
        if matches!(node.value, Value::Float(value) if !value.is_finite()) && !self.expects_key() {
            let message =
                "infinity and not-a-number cannot be sent as JSON; write it in quotes if it is text";
            return Err(YamlError::new(node.line, node.column, message));
        }
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Frame::Sequence { items, .. }) => items.push(node),
            Some(Frame::Mapping { entries, key, .. }) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => *key = Some(Key::Name(named(node)?)),
            },
        }
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.stack.last(), Some(Frame::Mapping { key: None, .. }))
    }

    fn set_key(&mut self, name: Key) {
        if let Some(Frame::Mapping { key, .. }) = self.stack.last_mut() {
            *key = Some(name);
        }
    }

    fn deeper(&self, by: usize, at: (u32, u32)) -> Result<(), YamlError> {
        if self.stack.len() + by > self.depth {
            return Err(YamlError::new(at.0, at.1, format!("nested deeper than {} levels", self.depth)));
        }
        Ok(())
    }

    fn spend(&mut self, nodes: usize, at: (u32, u32)) -> Result<(), YamlError> {
        let left = self.nodes_left.checked_sub(nodes).ok_or_else(|| {
            YamlError::new(at.0, at.1, "too many values, counting each as often as aliases repeat it")
        })?;
        *self.nodes_left = left;
        Ok(())
    }

    /// Applies keys and merges in the order of the text: the later one counts, as it does for kubectl.
    fn mapping(&mut self, entries: Vec<(Key, Node)>) -> Result<Vec<(Node, Node)>, YamlError> {
        let mut merged: Vec<(Node, Node)> = Vec::with_capacity(entries.len());
        let mut places: BTreeMap<String, Place> = BTreeMap::new();
        for (key, value) in entries {
            match key {
                Key::Name(key) => {
                    let name = key.as_str().unwrap_or_default().to_owned();
                    if let Some(Place { written: Some(first_line), .. }) = places.get(&name) {
                        let duplicate = Duplicate {
                            path: self.path(),
                            key: name.clone(),
                            line: key.line,
                            column: key.column,
                            first_line: *first_line,
                        };
                        self.duplicates.push(duplicate);
                    }
                    let line = key.line;
                    set(&mut merged, &mut places, name, key, value, Some(line));
                }
                Key::Merge => {
                    for (key, value) in merge_entries(value)? {
                        let name = key.as_str().unwrap_or_default().to_owned();
                        let written = places.get(&name).and_then(|place| place.written);
                        set(&mut merged, &mut places, name, key, value, written);
                    }
                }
            }
        }
        Ok(merged)
    }

    /// Where the collection that is being closed stands.
    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.stack {
            match frame {
                Frame::Sequence { items, .. } => path.push_str(&format!("[{}]", items.len())),
                Frame::Mapping { key: Some(Key::Name(key)), .. } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key.as_str().unwrap_or_default());
                }
                Frame::Mapping { .. } => {}
            }
        }
        path
    }
}

/// Where a key stands in the result, and the line where it was written, unless only a merge brought it.
struct Place {
    index: usize,
    written: Option<u32>,
}

fn set(
    merged: &mut Vec<(Node, Node)>,
    places: &mut BTreeMap<String, Place>,
    name: String,
    key: Node,
    value: Node,
    written: Option<u32>,
) {
    match places.get_mut(&name) {
        Some(place) => {
            place.written = written;
            if let Some(entry) = merged.get_mut(place.index) {
                *entry = (key, value);
            }
        }
        None => {
            places.insert(name, Place { index: merged.len(), written });
            merged.push((key, value));
        }
    }
}

/// What `<<` brings: the entries of one mapping, or of several where earlier ones count.
fn merge_entries(value: Node) -> Result<Vec<(Node, Node)>, YamlError> {
    let (line, column) = (value.line, value.column);
    let wrong = || YamlError::new(line, column, "'<<' needs a mapping or a list of mappings");
    match value.value {
        Value::Mapping(entries) => Ok(entries),
        Value::Sequence(items) => {
            let mut all = Vec::new();
            for item in items.into_iter().rev() {
                match item.value {
                    Value::Mapping(entries) => all.extend(entries),
                    _ => return Err(wrong()),
                }
            }
            Ok(all)
        }
        _ => Err(wrong()),
    }
}

/// A key as text.
fn named(node: Node) -> Result<Node, YamlError> {
    match scalar::key_text(&node.value) {
        Some(text) => Ok(Node { value: Value::String(text), ..node }),
        None => {
            let what = match node.value {
                Value::Mapping(_) => "; this looks like a template, which is not rendered",
                _ => "; write it in quotes",
            };
            Err(YamlError::new(node.line, node.column, format!("{} cannot be a key{what}", node.kind())))
        }
    }
}

fn measure(node: &Node) -> (usize, usize) {
    let below = |children: &mut dyn Iterator<Item = &Node>| {
        children.map(measure).fold((1, 0), |(nodes, height), (more, child)| (nodes + more, height.max(child)))
    };
    match &node.value {
        Value::Sequence(items) => {
            let (nodes, height) = below(&mut items.iter());
            (nodes, height + 1)
        }
        Value::Mapping(entries) => {
            let (nodes, height) = below(&mut entries.iter().flat_map(|(key, value)| [key, value]));
            (nodes, height + 1)
        }
        _ => (1, 0),
    }
}

fn is_merge(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> bool {
    text == "<<" && tag.map_or(style == ScalarStyle::Plain, |tag| core_tag(tag) == Some("merge"))
}

/// The last part of one of YAML's own tags.
fn core_tag(tag: &Tag) -> Option<&str> {
    const PREFIX: &str = "tag:yaml.org,2002:";
    if tag.handle == PREFIX { Some(&tag.suffix) } else { tag.suffix.strip_prefix(PREFIX) }
}

/// Three dashes, and no more, at the end: a separator that sticks to the line before it, or is indented.
fn ends_as_separator(text: &str) -> bool {
    text.strip_suffix("---").is_some_and(|before| !before.ends_with('-'))
}

/// YAML 1.1, and with it kubectl, ends a line at characters that YAML 1.2 takes for text. Outside of quotes the two
/// would read different values.
fn line_separator(text: &str, style: ScalarStyle) -> Option<String> {
    let quoted = matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted);
    let found = text.chars().find(|c| matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}')).filter(|_| !quoted)?;
    let code = u32::from(found);
    Some(format!(
        "the invisible line separator U+{code:04X} in text without quotes; remove it or write it in quotes"
    ))
}

fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let value = match tag {
        None if style == ScalarStyle::Plain => scalar::resolve_plain(text),
        None => Value::String(text.to_owned()),
        Some(tag) => match core_tag(tag).and_then(|tag| scalar::resolve_tagged(tag, text)) {
            Some(value) => value?,
            None => Value::String(text.to_owned()),
        },
    };
    Ok(value)
}
