//! Every promise of the queue, listed once and kept on every database.

mod ages;
mod claims;
mod costs;
mod decorators;
mod edits;
mod entries;
mod events;
mod fairness;
mod faults;
mod feed;
mod graphs;
mod leases;
mod limits;
mod lists;
mod processes;
mod pushes;
mod records;
mod runs;
mod schedules;
mod settling;
mod workers;

use crate::ground::{Database, Promise};

/// Nobody can LISTEN behind a pooler: a process there looks for what it can do, and hears nothing of what leaves it
/// nothing to do.
const NOT_BEHIND_A_POOLER: [&str; 1] = ["events::runs_that_end_by_delete_clear_and_reap_wake_relays"];

/// As long as all others together. A pooler sees nothing in them that it does not see in the rest: there they are for
/// `make pooler-soak`.
const STORMS: [&str; 13] = [
    "decorators::a_worker_that_loses_every_third_answer_runs_each_job_once",
    "fairness::a_cap_is_exact_over_processes_and_kills",
    "fairness::a_completion_under_a_cap_moves_one_job_however_many_keys_wait",
    "fairness::caps_and_limits_hold_whatever_happens_at_once",
    "faults::a_connection_that_freezes_is_given_up",
    "faults::a_database_that_dies_loses_nothing",
    "limits::a_limit_holds_whatever_happens_at_once",
    "limits::a_limit_is_exact_over_processes_and_kills",
    "processes::a_job_that_kills_its_workers_does_so_three_times",
    "processes::eight_processes_run_twenty_thousand_jobs_exactly_once",
    "processes::restarts_half_way_lose_nothing",
    "records::a_killed_worker_leaves_every_record_it_was_told_of",
    "schedules::a_schedule_ticks_once_over_five_processes_and_a_clock_jump",
];

/// Whether a promise waits until somebody asks for it by `--ignored`.
pub(crate) fn is_for_soaks(database: Database, name: &str) -> bool {
    database == Database::Bouncer && STORMS.contains(&name)
}

/// Names and tests of what a database keeps.
pub(crate) fn kept_on(database: Database) -> impl Iterator<Item = (&'static str, Promise)> {
    let kept = move |name| database != Database::Bouncer || !NOT_BEHIND_A_POOLER.contains(&name);
    all().into_iter().filter(move |(name, _)| kept(*name))
}

macro_rules! promises {
    ($($module:ident: $($name:ident)+;)+) => {
        fn all() -> Vec<(&'static str, Promise)> {
            vec![$($((
                concat!(stringify!($module), "::", stringify!($name)),
                (|ground| Box::pin($module::$name(ground))) as Promise,
            ),)+)+]
        }
    };
}

promises! {
    pushes:
        a_push_is_all_or_nothing
        fifty_pushes_with_one_key_make_one_run
        a_key_with_another_body_is_refused
        a_key_may_stand_for_a_request_whose_run_would_be_another_by_now
        a_key_of_one_tenant_means_nothing_to_another
        a_unique_key_returns_the_job_that_holds_it
        a_unique_key_is_free_again_after_a_failure
        a_run_ends_with_its_last_job
        a_run_with_nothing_left_to_do_has_ended
        a_runs_later_jobs_stand_further_back_in_the_line
        bad_pushes_are_refused_with_a_reason
        text_that_looks_like_sql_is_only_text
    ;
    claims:
        a_job_is_claimed_run_and_remembered
        two_workers_never_get_the_same_job
        jobs_of_one_priority_run_in_the_order_of_their_push
        a_higher_priority_runs_first
        a_scheduled_job_is_not_early
        a_claim_is_bounded_by_slots_lanes_and_kinds
        a_job_that_needs_more_scratch_is_left_for_others
        what_one_pull_claims_fits_into_the_scratch_together
        a_dead_worker_cannot_claim
        the_claim_uses_its_index_behind_a_deep_backlog
    ;
    settling:
        failures_count_attempts_and_end_in_failed
        a_failure_for_good_is_not_tried_again
        a_snooze_costs_no_attempt
        a_release_costs_no_attempt_and_no_time
        an_outcome_sent_twice_counts_once
        an_old_outcome_of_a_job_that_went_on_is_still_known
        a_stale_claim_cannot_finish
        a_batch_settles_each_claim_on_its_own
        two_claims_of_one_job_in_one_batch_are_told_apart
        a_result_too_large_fails_the_job_and_not_the_worker
        an_outcome_of_a_deleted_job_is_refused
        a_job_that_goes_back_at_once_keeps_its_time
    ;
    leases:
        a_silent_workers_jobs_are_freed
        a_worker_without_a_process_is_forgotten_when_it_leaves
        a_late_completion_that_nobody_reclaimed_is_accepted
        completions_of_one_batch_are_judged_one_by_one
        a_late_failure_that_nobody_reclaimed_counts_as_a_failure
        a_job_that_gets_further_each_time_is_no_poison
        losses_that_a_checkpoint_forgave_do_not_come_back
        losses_count_apart_and_end_in_poison
        a_beat_keeps_a_worker_alive_and_refuses_what_it_lost
        progress_and_checkpoint_reach_the_next_claim
        a_worker_that_comes_back_goes_on_with_what_nobody_took
        an_attempt_past_its_deadline_is_taken_back
        a_claim_whose_answer_never_arrived_goes_back
        a_claim_of_an_old_generation_is_over
    ;
    edits:
        a_cancelled_job_is_terminal_at_once
        cancel_raced_against_finish_has_one_outcome
        a_retry_starts_a_new_generation
        a_running_job_is_neither_retried_nor_deleted
        delete_forgets_a_job
        clear_forgets_what_matches_and_is_not_running
        prune_forgets_old_history_only
    ;
    limits:
        no_more_run_than_the_limit_says
        a_key_without_a_limit_parks_nothing
        a_job_that_goes_back_gives_up_its_place
        a_dead_workers_place_is_free_again
        a_changed_limit_parks_and_admits_at_once
        a_bad_limit_is_refused
        a_pace_is_kept_without_any_other_event
        time_without_workers_is_not_made_up_for
        a_request_to_slow_down_is_kept_and_wears_off
        a_waiting_worker_goes_on_when_the_limit_lets_it
        a_limit_is_exact_over_processes_and_kills
        a_limit_holds_whatever_happens_at_once
        pushes_at_once_share_one_limit
        a_limit_that_is_set_during_pushes_counts_them
        a_paused_lane_or_kind_is_not_claimed
        cancel_all_ends_what_matches_running_or_not
        retry_all_starts_what_matches_over
    ;
    fairness:
        a_flood_of_one_tenant_hardly_delays_another
        tenants_with_a_backlog_take_turns
        a_heavier_tenant_is_served_faster
        a_tenant_that_has_caught_up_starts_anew
        a_flood_of_retries_hardly_delays_another_tenant
        the_nameless_tenant_is_served_in_the_order_of_its_pushes
        parked_jobs_of_tenants_take_turns_too
        no_more_of_a_tenant_run_than_its_cap_says
        a_dead_workers_place_under_a_cap_is_free_again
        a_job_with_a_key_and_a_capped_tenant_needs_room_in_both
        a_full_key_does_not_hold_up_its_tenants_other_jobs
        a_full_tenant_does_not_hold_up_a_keys_other_tenants
        a_completion_under_a_cap_moves_one_job_however_many_keys_wait
        a_key_that_others_free_comes_to_a_tenant_with_room
        a_cap_set_on_a_running_queue_counts_what_is_there
        a_bad_cap_is_refused
        a_cap_is_exact_over_processes_and_kills
        caps_and_limits_hold_whatever_happens_at_once
        a_cap_that_is_set_during_pushes_counts_them
    ;
    lists:
        a_list_spans_live_jobs_and_history
        filters_narrow_a_list
        what_waits_of_a_tenant_is_counted
        a_brief_list_leaves_out_what_may_be_large
        counts_agree_with_the_rows
    ;
    ages:
        a_job_waits_from_when_it_could_be_claimed
        ages_are_told_by_lane_and_kind
    ;
    workers:
        a_worker_runs_what_is_pushed
        an_idle_worker_is_woken_by_another_process
        a_panic_is_a_failure
        an_attempt_that_takes_too_long_is_stopped
        a_cancel_stops_the_running_kind
        a_drain_lets_running_jobs_end
        a_drain_past_its_deadline_gives_jobs_back_uncounted
        a_worker_can_be_asked_to_drain_over_the_database
        retries_follow_by_themselves
        an_unknown_kind_is_left_for_others
        a_worker_that_was_declared_dead_goes_on_with_its_jobs
        a_busy_lane_does_not_starve_another
        a_second_claim_of_a_job_stops_the_first
        an_idle_worker_leaves_the_database_alone
        a_worker_claims_what_its_scratch_space_can_hold
    ;
    processes:
        eight_processes_run_twenty_thousand_jobs_exactly_once
        a_killed_workers_jobs_are_claimed_again
        a_stopped_worker_changes_nothing_when_it_wakes_up
        a_job_that_kills_its_workers_does_so_three_times
        a_pusher_killed_at_any_moment_loses_nothing_it_was_told
        restarts_half_way_lose_nothing
        ten_processes_may_start_at_once
        a_jump_of_the_clock_changes_no_lease
        a_jump_of_the_clock_changes_no_deadline
    ;
    graphs:
        a_job_waits_for_what_it_needs
        a_fan_in_of_a_thousand_is_released_once
        a_failed_need_is_followed_by_the_policy
        a_cancelled_need_takes_along_what_waits_for_it
        needs_that_cannot_be_met_are_refused
        an_optional_failure_makes_a_run_partial
        a_finishing_job_spawns_jobs_and_edges
        a_spawn_may_need_what_has_ended_already
        a_bad_spawn_fails_the_job_and_not_the_worker
        a_retried_step_runs_again_with_all_that_needs_it
        a_job_that_others_wait_for_is_not_deleted
        records_are_written_under_the_fence
        an_edit_of_a_record_names_the_version_it_saw
        a_run_with_records_outlives_its_history
        a_worker_runs_a_graph_to_its_end
    ;
    records:
        a_record_that_was_told_to_be_there_is_there
        a_record_of_a_claim_that_was_taken_away_is_refused
        a_record_that_no_database_takes_is_refused_at_once
        records_survive_beats_that_fail
        a_killed_worker_leaves_every_record_it_was_told_of
    ;
    entries:
        an_entry_is_kept_changed_and_deleted
        an_edit_of_an_entry_names_the_version_it_saw
        of_edits_at_once_one_wins
        entries_are_listed_by_kind_in_the_order_of_their_keys
        an_entry_that_no_database_takes_is_refused
    ;
    runs:
        a_record_tells_its_event_once
        a_run_is_playable_once_and_stays_so
        only_a_claim_that_holds_makes_a_run_playable
        a_kind_makes_its_run_playable_at_once
        runs_are_listed_newest_first
        filters_narrow_a_list_of_runs
        the_steps_of_a_run_are_counted
        a_cancelled_run_ends_at_once
        no_finish_adds_to_a_run_that_is_cancelled
        a_priority_counts_for_all_jobs_of_a_run
        a_deleted_run_leaves_nothing
        a_run_is_not_deleted_before_its_end_is_told
        a_run_that_is_retried_as_it_is_deleted_is_whole_or_gone
    ;
    costs:
        looking_at_runs_costs_the_same_behind_a_long_history
        ages_cost_the_same_behind_a_deep_backlog
    ;
    faults:
        a_database_that_dies_loses_nothing
        a_lost_answer_of_a_commit_is_settled_by_asking_again
        a_connection_that_freezes_is_given_up
    ;
    events:
        a_run_tells_its_life_in_order
        every_end_of_a_run_is_told_once
        callers_may_tell_of_their_own
        events_stay_until_their_run_is_forgotten_and_every_sink_has_them
        a_runs_events_wait_for_its_first_unsent_one
        what_waits_for_sinks_is_counted
        an_earlier_event_of_the_same_external_id_is_ahead
        a_run_that_is_told_of_as_it_is_pruned_is_whole_or_gone
        an_event_that_is_committed_late_is_not_skipped
        events_have_no_gaps_through_kills
        a_relay_loses_and_reorders_nothing
        a_sink_that_always_fails_delays_no_other
        a_relay_is_woken_by_another_process
        runs_that_end_by_delete_clear_and_reap_wake_relays
    ;
    feed:
        the_feed_tells_of_all_runs_and_goes_on_where_it_was
        what_is_committed_late_is_fed
        a_runs_events_are_fed_in_order_whoever_began_first
        a_follower_sees_each_event_once_whoever_writes
        forgotten_runs_leave_the_feed_without_harm
        a_cursor_that_cannot_be_of_this_database_is_refused
        events_that_came_from_another_server_are_fed
    ;
    schedules:
        a_schedule_ticks_once_over_five_processes_and_a_clock_jump
        missed_ticks_follow_their_policy
        a_schedule_is_kept_replaced_and_removed
        an_idle_worker_keeps_schedules_of_another_process
    ;
    decorators:
        a_worker_that_loses_every_third_answer_runs_each_job_once
        a_fault_is_before_or_after_the_call
        every_verb_is_a_span_with_its_figures
    ;
}
