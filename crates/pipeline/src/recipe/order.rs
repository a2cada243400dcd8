//! The order of steps: each after those that it needs.

/// Steps by number with the numbers of those they need, brought into order; otherwise they stay as they are.
/// The error are circles of steps each of which needs the next, and the last the first.
pub(super) fn sorted(needs: &[Vec<usize>]) -> Result<Vec<usize>, Vec<Vec<usize>>> {
    let (mut order, mut circles) = (Vec::with_capacity(needs.len()), Vec::new());
    let mut placed = vec![false; needs.len()];
    while placed.contains(&false) {
        let is_free = |step: &usize| !placed[*step] && needs[*step].iter().all(|needed| placed[*needed]);
        match (0..needs.len()).find(is_free) {
            Some(next) => {
                placed[next] = true;
                order.push(next);
            }
            None => {
                let circle = circle(needs, &placed);
                circle.iter().for_each(|step| placed[*step] = true);
                circles.push(circle);
            }
        }
    }
    if circles.is_empty() { Ok(order) } else { Err(circles) }
}

/// Whoever was not placed needs somebody who was not: following them must come back to a step that was seen.
fn circle(needs: &[Vec<usize>], placed: &[bool]) -> Vec<usize> {
    let mut way: Vec<usize> = Vec::new();
    let mut at = placed.iter().position(|placed| !placed).unwrap_or(0);
    loop {
        if let Some(seen) = way.iter().position(|step| *step == at) {
            return way.split_off(seen);
        }
        way.push(at);
        let next = needs[at].iter().find(|needed| !placed[**needed]);
        at = *next.expect("who is not placed waits for somebody who is not");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_stand_behind_what_they_need_and_otherwise_stay() {
        assert_eq!(sorted(&[vec![2], vec![], vec![], vec![0]]), Ok(vec![1, 2, 0, 3]));
        assert_eq!(sorted(&[vec![], vec![], vec![0]]), Ok(vec![0, 1, 2]));
    }

    #[test]
    fn circles_are_found_without_the_steps_that_only_lead_to_them() {
        assert_eq!(sorted(&[vec![1], vec![2], vec![3], vec![1]]), Err(vec![vec![1, 2, 3]]));
        assert_eq!(sorted(&[vec![0], vec![2], vec![1]]), Err(vec![vec![0], vec![1, 2]]));
    }
}
