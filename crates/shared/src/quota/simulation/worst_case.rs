//! What `tidegate check` states about limits of which clients get little.

use super::{
    client::SECOND,
    conditions::Conditions,
    limit::Limit,
    usefulness::{calm, part_of_possible},
    world::World,
};
use crate::lease::simulation::rng::Rng;
use tidegate_core::rules::{LoadOptions, RuleSet, Source};

/// Hundredths that the simulation may miss by chance.
const CHANCE: f64 = 4.0;

/// The error about a limit if `clients` clients get less than `part` percent of it at worst.
fn refusal(rule: &str, clients: usize, part: u32) -> Option<String> {
    let text = format!(
        "{{ domain: d, rlqs: {{ clients: {clients}, min_use: {part}% }}, descriptors: [{{ key: a, rate_limit: {{ {rule} }} }}] }}"
    );
    let parsed = RuleSet::parse(&[Source::file("r.yaml", text)], &LoadOptions::default());
    parsed.err().map(|errors| errors.to_string())
}

/// The number that follows a text.
fn number_after(message: &str, text: &str) -> Option<u32> {
    let (_, after) = message.split_once(text)?;
    after.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}

/// The least part that clients get of the limit or of their demand, whichever is less, in hundredths.
fn least_part(limit: &Limit, clients: usize) -> f64 {
    let part = |load: f64| {
        let conditions = Conditions { limit: limit.clone(), ..calm(clients, clients, load, true) };
        let mut world = World::new(conditions, Rng::of_seed(clients as u64));
        world.run_for(70 * SECOND);
        // With a slow limit, chance matters for a long time.
        let secs = (8_000.0 / limit.rate).clamp(100.0, 2_000.0) as u64;
        let part = part_of_possible(&mut world, secs * SECOND);
        assert_eq!(world.excess.0, 0, "{}", limit.rule);
        100.0 * part
    };
    [0.5, 1.0, 2.0].into_iter().map(part).fold(100.0, f64::min)
}

#[test]
fn clients_get_the_part_of_a_limit_that_check_states() {
    for limit in [
        Limit::log(5, 10),
        Limit::log(20, 10),
        Limit::fixed(20, 10),
        Limit::log(100, 10),
        Limit::log(100, 1),
        Limit::log(20, 1),
        Limit::fixed(100, 60),
        Limit::log(60, 60),
        Limit::bucket("token_bucket", 2, 5),
        Limit::bucket("token_bucket", 2, 20),
        Limit::bucket("token_bucket", 20, 20),
        Limit::bucket("leaky_bucket", 100, 50),
    ] {
        for clients in [1, 4, 10, 50] {
            let Some(refusal) = refusal(&limit.rule, clients, 100) else { panic!("{}", limit.rule) };
            // Other limits are too small for as many clients in any case.
            let Some(stated) = number_after(&refusal, "together get ") else { continue };
            let part = least_part(&limit, clients);
            println!("{}: {clients} clients get {part:.0} %, {stated} % are stated", limit.rule);
            assert!(
                part >= f64::from(stated) - CHANCE,
                "{}, {clients} clients: {part:.1} of {stated} %",
                limit.rule
            );
        }
    }
}

/// 20 requests in 10 s among four clients: only a third of them was admitted.
#[test]
fn the_bucket_that_check_names_instead_of_a_refused_limit_is_enough() {
    for (hits, secs) in [(20, 10), (100, 10), (100, 60), (20, 1)] {
        for clients in [1, 4, 10] {
            let limit = Limit::log(hits, secs);
            let Some(size) = refusal(&limit.rule, clients, 80)
                .and_then(|refusal| number_after(&refusal, "with a `size` of "))
            else {
                continue;
            };
            let bucket = Limit::bucket_of(hits, secs, size.into());
            assert_eq!(refusal(&bucket.rule, clients, 80), None, "{}", bucket.rule);
            let part = least_part(&bucket, clients);
            println!("{}: {clients} clients get {part:.0} %", bucket.rule);
            assert!(part >= 80.0 - CHANCE, "{}: {clients} clients get {part:.1} %", bucket.rule);
        }
    }
}
