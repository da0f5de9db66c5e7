//! Made lists look like what they were made from.

use super::*;

fn seeds() -> [(&'static str, Seed); 3] {
    [
        ("acl1", Seed::acl1()),
        ("fw1", Seed::fw1()),
        ("ipc1", Seed::ipc1()),
    ]
}

#[test]
fn a_list_of_the_size_of_the_given_set_has_its_statistics() {
    for (name, seed) in seeds() {
        let made = Seed::learn(&list(&seed, 100_000));
        for Distance {
            what,
            distance,
            limit,
        } in seed.distances(&made)
        {
            assert!(distance <= limit, "{name}: {what}: {distance} > {limit}");
        }
    }
}

#[test]
fn other_seeds_are_further_away_than_a_limit() {
    for (name, seed) in seeds() {
        for (other, its) in seeds().into_iter().filter(|(other, _)| *other != name) {
            let distances = seed.distances(&its);
            let mut beyond = distances.iter().filter(|it| it.distance > it.limit);
            assert!(beyond.next().is_some(), "{other} passes for {name}");
        }
    }
}

#[test]
fn a_seed_is_what_its_file_says() {
    for (name, seed) in seeds() {
        let text = seed.to_string();
        assert!(text.parse::<Seed>().unwrap() == seed, "{name}");
    }
    for wrong in [
        "",
        "shape 1 2",
        "shape 1 2 any all 6 1",
        "overlap x 1",
        "source-level 32 1 1 1",
    ] {
        assert!(
            format!("rules 1\n{wrong}\n").parse::<Seed>().is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn a_list_has_as_many_different_rules_as_were_asked_for() {
    for (name, seed) in seeds() {
        for count in [1, 300, 5000] {
            let rules = list(&seed, count);
            let different: HashSet<&Rule> = rules.iter().collect();
            assert_eq!((rules.len(), different.len()), (count, count), "{name}");
        }
    }
}

#[test]
fn no_rule_lies_behind_one_that_covers_it() {
    let rules = list(&Seed::fw1(), 2000);
    for (i, rule) in rules.iter().enumerate() {
        let covers = |other: &&Rule| {
            let mut fields = other.iter().zip(rule);
            fields.all(|(outer, inner)| outer.0 <= inner.0 && inner.1 <= outer.1)
        };
        assert_eq!(rules[..i].iter().find(covers), None, "{rule:?}");
    }
}

#[test]
fn so_many_rules_of_a_deep_list_lie_over_each_of_its_points() {
    let count = 20_000;
    let rules = deep(&Seed::fw1(), count, 170);
    assert_eq!(rules.len(), count);
    for point in points(&mut Random(count as u64)) {
        let matches = |rule: &&Rule| {
            let mut fields = rule.iter().zip(point);
            fields.all(|(&(lo, hi), value)| lo <= value && value <= hi)
        };
        let depth = rules.iter().filter(matches).count();
        assert!((170..300).contains(&depth), "{depth} over {point:?}");
    }
}
