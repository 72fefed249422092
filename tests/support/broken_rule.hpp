#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

namespace idempotency::testing_support {

/// A rule of the store contract that a `ReferenceStore` breaks on purpose.
enum class BrokenRule : std::uint8_t {
  none,

  // begin: what is seen of the record
  running_record_expires,
  uncertain_record_expires,
  running_lease_ignored,
  hold_ignored,
  callers_mode_judges,
  callers_hold_judges,
  effect_mark_ignored,
  uncertain_taken_over,
  own_token_not_recognised,
  ended_token_starts_again,
  owner_runs_again_after_success,
  late_copy_takes_the_turn,
  missing_deadline_stealable,
  lease_never_ends,
  lease_ends_early,
  lease_under_hold_ends_late,
  fingerprint_not_compared_when_finished,
  fingerprint_not_compared_when_unfinished,
  owners_fingerprint_not_compared,
  fingerprint_judged_before_retention,
  absent_fingerprint_is_a_mismatch,
  unknown_scheme_accepted,
  earlier_scheme_not_compared,

  // begin: what becomes of it
  first_fence_is_two,
  takeover_keeps_fence,
  attempt_not_counted,
  repeated_begin_keeps_lease,
  repeated_begin_counts_an_attempt,
  first_owners_mode_kept,
  effect_mark_inherited,
  takeover_keeps_lease,
  fingerprint_dropped_at_takeover,
  fingerprint_of_earliest_scheme_stored,
  trace_of_last_caller,
  created_anew_at_takeover,
  old_life_goes_on,
  failure_survives_the_next_turn,
  mismatch_changes_the_owner,
  begin_reads_then_writes,
  concurrent_copies_refused,
  takeover_reads_then_writes,
  answer_without_fingerprint,
  uncertain_since_now,

  // the owner's writes
  replaced_owner_accepted,
  token_not_checked,
  fence_not_checked,
  renewal_steals_back,
  anyone_releases,
  every_release_called_released,
  anyone_settles_a_doubt,
  late_owner_refused,
  failure_after_doubt_refused,
  silent_owner_refused,
  repeated_completion_lost,
  repeated_failure_lost,
  repeated_release_lost,
  result_overwritten,
  failure_overwritten,
  success_downgraded,
  released_record_reopened,
  renewal_of_uncertain_stored,
  write_creates_a_record,
  earlier_life_written,
  renewal_ignored,
  doubt_ignored,
  mark_ignored,
  mark_lost_with_renewal,
  release_forgets_the_record,
  permanent_failure_tried_again,
  retryable_failure_is_for_good,
  completion_reads_then_writes,

  // bytes
  key_case_folded,
  key_trailing_space_cut,
  key_truncated,
  key_colons_merged,
  type_ignored,
  keys_collide,
  unknown_key_found,
  result_cut_at_nul,
  result_trimmed_to_text,
  result_cut_at_64_kibibytes,
  empty_result_is_absent,
  reason_lost,
  failed_result_lost,

  // times
  lease_rounded_to_seconds,
  retention_rounded_to_seconds,
  retention_counted_from_begin,
  retention_restarts_at_replay,
  retention_restarts_at_repeated_completion,
  lease_used_as_retention,
  long_time_overflows,
  remaining_lease_is_the_whole_lease,
  expired_record_found,
  lease_not_shown,
  completion_is_no_change,

  // operators
  settled_at_any_fence,
  live_record_settled,
  finished_record_settled,
  run_out_record_not_settled,
  missing_deadline_settled,
  late_settlement_lost,
  settled_though_renewed,
  settled_though_begun_again,
  settled_though_marked,
  settled_though_doubted,
  settled_in_another_life,
  resolver_leaves_owner,
  settlement_keeps_fence,
  settlement_reads_then_writes,
  settlement_for_retry_is_for_good,
  settlement_without_a_result_has_an_empty_one,
  settlement_loses_reason,
  settlement_for_ever,
  repeated_settlement_lost,
  anyones_settlement_repeated,
  purge_takes_more_than_its_limit,
  purge_takes_run_out_leases,
  purge_takes_what_is_kept,
  list_ordered_by_text,
  list_ignores_type,
  list_ignores_state,
  list_ignores_age,
  list_repeats_the_cursor,
  list_skips_after_the_cursor,
  list_never_ends,
  list_loses_the_trace,
  list_loses_the_lease,
  uncertain_counted_as_running,

  // batches
  batch_stops_at_the_first_loss,
  batch_renews_all_for_the_first_lease,
  batch_renews_a_hundred,
  empty_batch_refused,

  // handles and transactions
  second_handle_has_its_own_records,
  handle_trusts_its_memory,
  record_survives_rollback,
  effect_survives_rollback,
  record_shown_before_commit,
  effect_lost_at_commit,
  transaction_ignores_fingerprints,
  transaction_does_not_replay,
  calls_do_not_wait_for_transactions,
  transaction_takes_what_another_owns,
  transaction_completes_for_anyone,
  transactions_do_not_wait,
  rollback_leaves_the_key_taken,
  adopted_commit_left_open,
  adopted_called_joined,
  adopted_rollback_commits,
  joined_not_recognised,
  joined_commit_lost,
  joined_commit_commits_all,
  joined_rollback_keeps_everything,
  joined_rollback_takes_everything,
  joined_sees_the_committed_only,
};

/// A broken rule, and the test of the suites that must notice.
struct RuleCase {
  BrokenRule rule;
  std::string_view name;
  std::string_view test;  ///< suite and name
};

inline void PrintTo(const RuleCase& rule, std::ostream* out) { *out << rule.name; }

}  // namespace idempotency::testing_support
