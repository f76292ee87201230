//! The lists of command lines, as `any_cluster.txt` describes them.

/// Lines that run one after the other in a namespace of their own.
#[derive(Debug)]
pub struct Group {
    pub name: &'static str,
    pub lines: Vec<Line>,
}

/// What somebody types.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    pub text: &'static str,
    pub has_to_succeed: bool,
}

/// Every group of a list, in its order.
pub fn groups(list: &'static str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (number, row) in list.lines().enumerate() {
        let (sign, rest) = row.split_at(row.len().min(1));
        match sign {
            "" | "#" => {}
            "[" => groups.push(Group { name: rest.trim_end_matches(']'), lines: Vec::new() }),
            "$" | "!" => {
                let group = groups.last_mut().expect("a group before the first line");
                group.lines.push(Line { text: rest.trim(), has_to_succeed: sign == "$" });
            }
            _ => panic!("row {}: expected [group], $ line, ! line or a comment: {row}", number + 1),
        }
    }
    groups
}

/// How many lines there are.
pub fn count(groups: &[Group]) -> usize {
    groups.iter().map(|group| group.lines.len()).sum()
}
