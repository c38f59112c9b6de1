//! What the documentation shows must be what happens.

use tidegate_core::{Action, Ask, Limit, Timestamp};

const PAGE: &str = include_str!("../../../docs/algorithms.md");

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches(['|', ' ']).split('|').map(str::trim).collect()
}

/// The table "The same traffic through each" of `docs/algorithms.md`, row by row.
#[test]
fn the_table_of_algorithms_comes_out() {
    let mut lines = PAGE.lines().skip_while(|line| !line.starts_with("| second |"));
    let seconds: Vec<u64> =
        cells(lines.next().unwrap())[1..].iter().map(|cell| cell.parse().unwrap()).collect();
    let rows: Vec<Vec<&str>> =
        lines.skip(1).take_while(|line| line.starts_with('|')).map(cells).collect();
    assert_eq!(rows.len(), 5, "the table is found");
    for row in rows {
        let limit: Limit = row[0].trim_matches('`').parse().unwrap();
        let mut state = None;
        let mut found = Vec::new();
        for second in &seconds {
            let ask = Ask::at(Timestamp::from_secs(*second));
            let admitted = limit.fits(state.as_ref(), &ask, 1);
            let action = if admitted { Action::Take } else { Action::Refuse };
            let _ = limit.settle(&mut state, &ask, 1, action);
            found.push(if admitted { "+" } else { "-" });
        }
        assert_eq!(found, row[1..], "{limit}");
    }
}
