// The suites are tried on a store that keeps every rule, and on one that breaks one rule at a time: each must be noticed
// by the test that is named for it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/testing/manual_clock.hpp"
#include "idempotency/testing/store_conformance.hpp"
#include "support/broken_rule.hpp"
#include "support/child_process.hpp"
#include "support/reference_store.hpp"

namespace idempotency::testing {
namespace {

using testing_support::BrokenRule;
using testing_support::ChildProcess;
using testing_support::ProcessEnd;
using testing_support::ReferenceApplication;
using testing_support::ReferenceState;
using testing_support::ReferenceStore;
using testing_support::ReferenceTransaction;
using testing_support::RuleCase;

constexpr std::array rule_cases{
    RuleCase{BrokenRule::running_record_expires, "running_record_expires",
             "StoreConformance.NeverForgetsARunningRecord"},
    RuleCase{BrokenRule::uncertain_record_expires, "uncertain_record_expires",
             "StoreConformance.NeverForgetsAnUncertainRecord"},
    RuleCase{BrokenRule::running_lease_ignored, "running_lease_ignored",
             "StoreConformance.RefusesADuplicateWhileTheLeaseRuns"},
    RuleCase{BrokenRule::hold_ignored, "hold_ignored",
             "StoreConformance.BecomesUncertainWhenALeaseRanOutUnderHold"},
    RuleCase{BrokenRule::callers_mode_judges, "callers_mode_judges",
             "StoreConformance.ObeysTheRecordsHoldAndNotTheCallersMode"},
    RuleCase{BrokenRule::callers_hold_judges, "callers_hold_judges",
             "StoreConformance.ObeysTheRecordsTakeOverAndNotTheCallersMode"},
    RuleCase{BrokenRule::effect_mark_ignored, "effect_mark_ignored",
             "StoreConformance.HoldsARecordWhoseEffectIsMarked"},
    RuleCase{BrokenRule::uncertain_taken_over, "uncertain_taken_over",
             "StoreConformance.BlocksEverybodyWhileTheOutcomeIsUncertain"},
    RuleCase{BrokenRule::own_token_not_recognised, "own_token_not_recognised",
             "StoreConformance.GrantsARepeatedBeginTheSameTurnAgain"},
    RuleCase{BrokenRule::ended_token_starts_again, "ended_token_starts_again",
             "StoreConformance.TellsTheCallThatFailedOfItsFailureInsteadOfStartingItAgain"},
    RuleCase{BrokenRule::owner_runs_again_after_success, "owner_runs_again_after_success",
             "StoreConformance.ReplaysTheResultToOthersAndToTheOwner"},
    RuleCase{BrokenRule::late_copy_takes_the_turn, "late_copy_takes_the_turn",
             "StoreConformance.StartsNothingForALateCopyOfBegin"},
    RuleCase{BrokenRule::missing_deadline_stealable, "missing_deadline_stealable",
             "StoreConformance.NeverStealsARecordWithoutADeadline"},
    RuleCase{BrokenRule::lease_never_ends, "lease_never_ends",
             "StoreConformance.EndsALeaseWhenItIsOver"},
    RuleCase{BrokenRule::lease_ends_early, "lease_ends_early",
             "StoreConformance.EndsALeaseWhenItIsOver"},
    RuleCase{BrokenRule::lease_under_hold_ends_late, "lease_under_hold_ends_late",
             "StoreConformance.EndsALeaseUnderHoldWhenItIsOver"},
    RuleCase{BrokenRule::fingerprint_not_compared_when_finished,
             "fingerprint_not_compared_when_finished",
             "StoreConformance.RefusesAnotherRequestOnAFinishedRecord"},
    RuleCase{BrokenRule::fingerprint_not_compared_when_unfinished,
             "fingerprint_not_compared_when_unfinished",
             "StoreConformance.RefusesAnotherRequestOnAnUnfinishedRecord"},
    RuleCase{BrokenRule::owners_fingerprint_not_compared, "owners_fingerprint_not_compared",
             "StoreConformance.ComparesTheFingerprintOfTheOwnerToo"},
    RuleCase{BrokenRule::fingerprint_judged_before_retention, "fingerprint_judged_before_retention",
             "StoreConformance.JudgesTheRetentionBeforeTheFingerprint"},
    RuleCase{BrokenRule::absent_fingerprint_is_a_mismatch, "absent_fingerprint_is_a_mismatch",
             "StoreConformance.ComparesNothingWhenEitherSideHasNoFingerprint"},
    RuleCase{BrokenRule::unknown_scheme_accepted, "unknown_scheme_accepted",
             "StoreConformance.RefusesToCompareAnUnknownScheme"},
    RuleCase{BrokenRule::earlier_scheme_not_compared, "earlier_scheme_not_compared",
             "StoreConformance.ComparesUnderTheSchemeOfTheRecord"},
    RuleCase{BrokenRule::first_fence_is_two, "first_fence_is_two",
             "StoreConformance.LetsTheFirstCallerIn"},
    RuleCase{BrokenRule::takeover_keeps_fence, "takeover_keeps_fence",
             "StoreConformance.HandsOverWhenALeaseRanOutUnderTakeOver"},
    RuleCase{BrokenRule::attempt_not_counted, "attempt_not_counted",
             "StoreConformance.RaisesFenceAndAttemptsWithEveryTurn"},
    RuleCase{BrokenRule::repeated_begin_keeps_lease, "repeated_begin_keeps_lease",
             "StoreConformance.CountsTheLeaseOfARepeatedBeginAnew"},
    RuleCase{BrokenRule::repeated_begin_counts_an_attempt, "repeated_begin_counts_an_attempt",
             "StoreConformance.GrantsARepeatedBeginTheSameTurnAgain"},
    RuleCase{BrokenRule::first_owners_mode_kept, "first_owners_mode_kept",
             "StoreConformance.WritesTheModeOfEachNewOwnerIntoTheRecord"},
    RuleCase{BrokenRule::effect_mark_inherited, "effect_mark_inherited",
             "StoreConformance.DoesNotHandTheEffectMarkToTheNextOwner"},
    RuleCase{BrokenRule::takeover_keeps_lease, "takeover_keeps_lease",
             "StoreConformance.CountsANewOwnersLeaseFromItsOwnBegin"},
    RuleCase{BrokenRule::fingerprint_dropped_at_takeover, "fingerprint_dropped_at_takeover",
             "StoreConformance.KeepsTheFingerprintThroughEveryChange"},
    RuleCase{BrokenRule::fingerprint_of_earliest_scheme_stored,
             "fingerprint_of_earliest_scheme_stored",
             "StoreConformance.StoresTheFingerprintUnderTheCurrentScheme"},
    RuleCase{BrokenRule::trace_of_last_caller, "trace_of_last_caller",
             "StoreConformance.KeepsTheTraceOfTheFirstCaller"},
    RuleCase{BrokenRule::created_anew_at_takeover, "created_anew_at_takeover",
             "StoreConformance.KeepsItsBirthdayThroughTakeOverAndCompletion"},
    RuleCase{BrokenRule::old_life_goes_on, "old_life_goes_on",
             "StoreConformance.StartsANewLifeWhenTheRetentionIsOver"},
    RuleCase{BrokenRule::failure_survives_the_next_turn, "failure_survives_the_next_turn",
             "StoreConformance.ForgetsAFailureWhenTheNextTurnBegins"},
    RuleCase{BrokenRule::mismatch_changes_the_owner, "mismatch_changes_the_owner",
             "StoreConformance.ChangesNothingForAMismatch"},
    RuleCase{BrokenRule::begin_reads_then_writes, "begin_reads_then_writes",
             "StoreConformance.LetsOneOfManyConcurrentCallersIn"},
    RuleCase{BrokenRule::concurrent_copies_refused, "concurrent_copies_refused",
             "StoreConformance.GrantsAllConcurrentCopiesOfOneCallTheSameTurn"},
    RuleCase{BrokenRule::takeover_reads_then_writes, "takeover_reads_then_writes",
             "StoreConformance.LetsOneOfManyConcurrentCallersTakeOver"},
    RuleCase{BrokenRule::answer_without_fingerprint, "answer_without_fingerprint",
             "StoreConformance.TellsTheRecordsFingerprintWithItsAnswer"},
    RuleCase{BrokenRule::uncertain_since_now, "uncertain_since_now",
             "StoreConformance.TellsSinceWhenTheOutcomeIsUncertain"},
    RuleCase{BrokenRule::replaced_owner_accepted, "replaced_owner_accepted",
             "StoreConformance.RefusesEveryWriteOfAnOwnerThatWasReplaced"},
    RuleCase{BrokenRule::token_not_checked, "token_not_checked",
             "StoreConformance.RefusesEveryWriteOfADuplicate"},
    RuleCase{BrokenRule::fence_not_checked, "fence_not_checked",
             "StoreConformance.RefusesEveryWriteAtAnotherFence"},
    RuleCase{BrokenRule::renewal_steals_back, "renewal_steals_back",
             "StoreConformance.DoesNotGiveALeaseBackToALateHeartbeat"},
    RuleCase{BrokenRule::anyone_releases, "anyone_releases",
             "StoreConformance.RefusesEveryWriteOfADuplicate"},
    RuleCase{BrokenRule::every_release_called_released, "every_release_called_released",
             "StoreConformance.TellsAReleaseOfTheOwnerFromOneOfAStranger"},
    RuleCase{BrokenRule::anyone_settles_a_doubt, "anyone_settles_a_doubt",
             "StoreConformance.LetsNobodyElseSettleADoubt"},
    RuleCase{BrokenRule::late_owner_refused, "late_owner_refused",
             "StoreConformance.BelievesALateOwnerUnderHold"},
    RuleCase{BrokenRule::failure_after_doubt_refused, "failure_after_doubt_refused",
             "StoreConformance.LetsTheOwnerSettleItsOwnDoubt"},
    RuleCase{BrokenRule::silent_owner_refused, "silent_owner_refused",
             "StoreConformance.LetsAnOwnerGoOnWhoseLeaseRanOutUnnoticed"},
    RuleCase{BrokenRule::repeated_completion_lost, "repeated_completion_lost",
             "StoreConformance.StoresARepeatedCompletionAndKeepsTheFirstResult"},
    RuleCase{BrokenRule::repeated_failure_lost, "repeated_failure_lost",
             "StoreConformance.StoresRepeatedFailuresAndKeepsTheFirst"},
    RuleCase{BrokenRule::repeated_release_lost, "repeated_release_lost",
             "StoreConformance.StoresARepeatedReleaseDoubtMarkAndRenewal"},
    RuleCase{BrokenRule::result_overwritten, "result_overwritten",
             "StoreConformance.StoresARepeatedCompletionAndKeepsTheFirstResult"},
    RuleCase{BrokenRule::failure_overwritten, "failure_overwritten",
             "StoreConformance.StoresRepeatedFailuresAndKeepsTheFirst"},
    RuleCase{BrokenRule::success_downgraded, "success_downgraded",
             "StoreConformance.ChangesNoFinishedRecordNotEvenForItsOwner"},
    RuleCase{BrokenRule::released_record_reopened, "released_record_reopened",
             "StoreConformance.LetsNoLateWriteReopenAReleasedRecord"},
    RuleCase{BrokenRule::renewal_of_uncertain_stored, "renewal_of_uncertain_stored",
             "StoreConformance.RefusesWritesThatAnUncertainRecordDoesNotAllow"},
    RuleCase{BrokenRule::write_creates_a_record, "write_creates_a_record",
             "StoreConformance.RefusesWritesToAKeyThatNobodyHasUsedAndCreatesNothing"},
    RuleCase{BrokenRule::earlier_life_written, "earlier_life_written",
             "StoreConformance.RefusesWritesOfAnEarlierLife"},
    RuleCase{BrokenRule::renewal_ignored, "renewal_ignored",
             "StoreConformance.CountsARenewedLeaseFromTheRenewal"},
    RuleCase{BrokenRule::doubt_ignored, "doubt_ignored",
             "StoreConformance.BlocksEverybodyWhileTheOutcomeIsUncertain"},
    RuleCase{BrokenRule::mark_ignored, "mark_ignored",
             "StoreConformance.HoldsARecordWhoseEffectIsMarked"},
    RuleCase{BrokenRule::mark_lost_with_renewal, "mark_lost_with_renewal",
             "StoreConformance.KeepsTheEffectMarkThroughRenewalsAndRepeatedCalls"},
    RuleCase{BrokenRule::release_forgets_the_record, "release_forgets_the_record",
             "StoreConformance.LetsTheNextCallerInAfterARelease"},
    RuleCase{BrokenRule::permanent_failure_tried_again, "permanent_failure_tried_again",
             "StoreConformance.ReplaysAPermanentFailure"},
    RuleCase{BrokenRule::retryable_failure_is_for_good, "retryable_failure_is_for_good",
             "StoreConformance.LetsTheNextCallerInAfterARetryableFailure"},
    RuleCase{BrokenRule::completion_reads_then_writes, "completion_reads_then_writes",
             "StoreConformance.LetsEitherALateCompletionOrATakeOverWin"},
    RuleCase{BrokenRule::key_case_folded, "key_case_folded",
             "StoreConformance.TellsKeysApartByEveryByte"},
    RuleCase{BrokenRule::key_trailing_space_cut, "key_trailing_space_cut",
             "StoreConformance.TellsKeysApartByEveryByte"},
    RuleCase{BrokenRule::key_truncated, "key_truncated",
             "StoreConformance.KeepsKeysOfTheGreatestLengthWhole"},
    RuleCase{BrokenRule::key_colons_merged, "key_colons_merged",
             "StoreConformance.TellsPartsOfKeysApart"},
    RuleCase{BrokenRule::type_ignored, "type_ignored", "StoreConformance.TellsBusinessTypesApart"},
    RuleCase{BrokenRule::keys_collide, "keys_collide",
             "StoreConformance.KeepsManyKeysApartUnderLoad"},
    RuleCase{BrokenRule::unknown_key_found, "unknown_key_found",
             "StoreConformance.KnowsNothingOfAKeyThatNobodyHasUsed"},
    RuleCase{BrokenRule::result_cut_at_nul, "result_cut_at_nul",
             "StoreConformance.ReturnsResultsAsTheyWereStored"},
    RuleCase{BrokenRule::result_trimmed_to_text, "result_trimmed_to_text",
             "StoreConformance.ReturnsResultsAsTheyWereStored"},
    RuleCase{BrokenRule::result_cut_at_64_kibibytes, "result_cut_at_64_kibibytes",
             "StoreConformance.ReturnsAResultOfOneMebibyte"},
    RuleCase{BrokenRule::empty_result_is_absent, "empty_result_is_absent",
             "StoreConformance.TellsAnAbsentResultFromAnEmptyOne"},
    RuleCase{BrokenRule::reason_lost, "reason_lost",
             "StoreConformance.ReturnsFailuresAsTheyWereStored"},
    RuleCase{BrokenRule::failed_result_lost, "failed_result_lost",
             "StoreConformance.ReturnsFailuresAsTheyWereStored"},
    RuleCase{BrokenRule::lease_rounded_to_seconds, "lease_rounded_to_seconds",
             "StoreConformance.NeverRoundsALeaseToNothing"},
    RuleCase{BrokenRule::retention_rounded_to_seconds, "retention_rounded_to_seconds",
             "StoreConformance.NeverRoundsARetention"},
    RuleCase{BrokenRule::retention_counted_from_begin, "retention_counted_from_begin",
             "StoreConformance.CountsTheRetentionFromTheCompletion"},
    RuleCase{BrokenRule::retention_restarts_at_replay, "retention_restarts_at_replay",
             "StoreConformance.DoesNotCountTheRetentionAnewForAReplayOrARepeatedWrite"},
    RuleCase{BrokenRule::retention_restarts_at_repeated_completion,
             "retention_restarts_at_repeated_completion",
             "StoreConformance.DoesNotCountTheRetentionAnewForAReplayOrARepeatedWrite"},
    RuleCase{BrokenRule::lease_used_as_retention, "lease_used_as_retention",
             "StoreConformance.KeepsRetentionsApartFromLeasesAndFromEachOther"},
    RuleCase{BrokenRule::long_time_overflows, "long_time_overflows",
             "StoreConformance.AcceptsTheLongestTimes"},
    RuleCase{BrokenRule::remaining_lease_is_the_whole_lease, "remaining_lease_is_the_whole_lease",
             "StoreConformance.TellsHowMuchOfALeaseRemains"},
    RuleCase{BrokenRule::expired_record_found, "expired_record_found",
             "StoreConformance.NeverRoundsARetention"},
    RuleCase{BrokenRule::lease_not_shown, "lease_not_shown",
             "StoreConformance.ShowsWhatARunningRecordHolds"},
    RuleCase{BrokenRule::completion_is_no_change, "completion_is_no_change",
             "StoreConformance.ShowsWhatAFinishedRecordHolds"},
    RuleCase{BrokenRule::settled_at_any_fence, "settled_at_any_fence",
             "SettlementConformance.RefusesToSettleAtAnotherFenceThanTheRecords"},
    RuleCase{BrokenRule::live_record_settled, "live_record_settled",
             "SettlementConformance.RefusesToSettleALiveRecord"},
    RuleCase{BrokenRule::finished_record_settled, "finished_record_settled",
             "SettlementConformance.RefusesToSettleWhatIsFinishedOrUnknown"},
    RuleCase{BrokenRule::run_out_record_not_settled, "run_out_record_not_settled",
             "SettlementConformance.SettlesARecordWhoseLeaseRanOut"},
    RuleCase{BrokenRule::missing_deadline_settled, "missing_deadline_settled",
             "SettlementConformance.RefusesToSettleARunningRecordWithoutADeadline"},
    RuleCase{BrokenRule::late_settlement_lost, "late_settlement_lost",
             "SettlementConformance.SettlesHoweverLateWhatHasNotMoved"},
    RuleCase{BrokenRule::settled_though_renewed, "settled_though_renewed",
             "SettlementConformance.RefusesToSettleWhatItsOwnerRenewedMeanwhile"},
    RuleCase{BrokenRule::settled_though_begun_again, "settled_though_begun_again",
             "SettlementConformance.RefusesToSettleWhatItsOwnerBeganAgainMeanwhile"},
    RuleCase{BrokenRule::settled_though_marked, "settled_though_marked",
             "SettlementConformance.RefusesToSettleWhatItsOwnerMarkedMeanwhile"},
    RuleCase{BrokenRule::settled_though_doubted, "settled_though_doubted",
             "SettlementConformance.RefusesToSettleWhatBecameUncertainMeanwhile"},
    RuleCase{BrokenRule::settled_in_another_life, "settled_in_another_life",
             "SettlementConformance.RefusesToSettleTheNextLife"},
    RuleCase{BrokenRule::resolver_leaves_owner, "resolver_leaves_owner",
             "SettlementConformance.RefusesEveryWriteOfTheOwnerAfterASettlement"},
    RuleCase{BrokenRule::settlement_keeps_fence, "settlement_keeps_fence",
             "SettlementConformance.SettlesAnUncertainRecordAsSucceeded"},
    RuleCase{BrokenRule::settlement_reads_then_writes, "settlement_reads_then_writes",
             "SettlementConformance.LetsEitherTheOwnerOrTheResolverWin"},
    RuleCase{BrokenRule::settlement_for_retry_is_for_good, "settlement_for_retry_is_for_good",
             "SettlementConformance.SettlesAnUncertainRecordForAnotherTry"},
    RuleCase{BrokenRule::settlement_without_a_result_has_an_empty_one,
             "settlement_without_a_result_has_an_empty_one",
             "SettlementConformance.SettlesAsSucceededWithoutAResult"},
    RuleCase{BrokenRule::settlement_loses_reason, "settlement_loses_reason",
             "SettlementConformance.SettlesAnUncertainRecordAsFailedForGood"},
    RuleCase{BrokenRule::settlement_for_ever, "settlement_for_ever",
             "SettlementConformance.KeepsASettlementForItsRetention"},
    RuleCase{BrokenRule::repeated_settlement_lost, "repeated_settlement_lost",
             "SettlementConformance.RecognisesARepeatedSettlement"},
    RuleCase{BrokenRule::anyones_settlement_repeated, "anyones_settlement_repeated",
             "SettlementConformance.RecognisesARepeatedSettlement"},
    RuleCase{BrokenRule::purge_takes_more_than_its_limit, "purge_takes_more_than_its_limit",
             "AdminStoreConformance.PurgesOnlyWhatIsPastItsRetention"},
    RuleCase{BrokenRule::purge_takes_run_out_leases, "purge_takes_run_out_leases",
             "AdminStoreConformance.PurgesOnlyWhatIsPastItsRetention"},
    RuleCase{BrokenRule::purge_takes_what_is_kept, "purge_takes_what_is_kept",
             "AdminStoreConformance.PurgesOnlyWhatIsPastItsRetention"},
    RuleCase{BrokenRule::list_ordered_by_text, "list_ordered_by_text",
             "AdminStoreConformance.ListsTypeByType"},
    RuleCase{BrokenRule::list_ignores_type, "list_ignores_type",
             "AdminStoreConformance.ListsByType"},
    RuleCase{BrokenRule::list_ignores_state, "list_ignores_state",
             "AdminStoreConformance.ListsByState"},
    RuleCase{BrokenRule::list_ignores_age, "list_ignores_age", "AdminStoreConformance.ListsByAge"},
    RuleCase{BrokenRule::list_repeats_the_cursor, "list_repeats_the_cursor",
             "AdminStoreConformance.ListsEveryRecordOnceInTheOrderOfTheirKeys"},
    RuleCase{BrokenRule::list_skips_after_the_cursor, "list_skips_after_the_cursor",
             "AdminStoreConformance.ListsEveryRecordOnceInTheOrderOfTheirKeys"},
    RuleCase{BrokenRule::list_never_ends, "list_never_ends",
             "AdminStoreConformance.EndsAListingThatFillsItsLastPage"},
    RuleCase{BrokenRule::list_loses_the_trace, "list_loses_the_trace",
             "AdminStoreConformance.ListsRecordsWithAllThatTheyHold"},
    RuleCase{BrokenRule::list_loses_the_lease, "list_loses_the_lease",
             "SettlementConformance.SettlesWhatWasListed"},
    RuleCase{BrokenRule::uncertain_counted_as_running, "uncertain_counted_as_running",
             "AdminStoreConformance.CountsRecordsByState"},
    RuleCase{BrokenRule::batch_stops_at_the_first_loss, "batch_stops_at_the_first_loss",
             "BatchStoreConformance.AnswersInTheOrderOfTheRequestsAlsoBetweenLosses"},
    RuleCase{BrokenRule::batch_renews_all_for_the_first_lease,
             "batch_renews_all_for_the_first_lease",
             "BatchStoreConformance.RenewsEachLeaseForItself"},
    RuleCase{BrokenRule::batch_renews_a_hundred, "batch_renews_a_hundred",
             "BatchStoreConformance.RenewsManyLeasesAtOnce"},
    RuleCase{BrokenRule::empty_batch_refused, "empty_batch_refused",
             "BatchStoreConformance.RenewsNothingWhenAskedForNothing"},
    RuleCase{BrokenRule::batch_begins_all_as_the_first_asks, "batch_begins_all_as_the_first_asks",
             "BatchBeginStoreConformance.BeginsEachRecordAsItsOwnRequestSays"},
    RuleCase{BrokenRule::batch_answers_in_the_order_of_keys, "batch_answers_in_the_order_of_keys",
             "BatchBeginStoreConformance.AnswersInTheOrderOfTheRequestsWhateverTheyMeet"},
    RuleCase{BrokenRule::batch_judges_each_key_once, "batch_judges_each_key_once",
             "BatchBeginStoreConformance.JudgesTheRequestsOfOneKeyOneAfterTheOther"},
    RuleCase{BrokenRule::batch_begins_with_other_tokens, "batch_begins_with_other_tokens",
             "BatchBeginStoreConformance.MayBeRepeatedWithTheSameTokens"},
    RuleCase{BrokenRule::batch_begins_a_hundred, "batch_begins_a_hundred",
             "BatchBeginStoreConformance.BeginsManyAtOnce"},
    RuleCase{BrokenRule::empty_batch_of_begins_refused, "empty_batch_of_begins_refused",
             "BatchBeginStoreConformance.BeginsNothingWhenAskedForNothing"},
    RuleCase{BrokenRule::batch_of_begins_looks_then_writes, "batch_of_begins_looks_then_writes",
             "BatchBeginStoreConformance.GivesEachOfTheSameKeysToOneOfManyBatches"},
    RuleCase{BrokenRule::second_handle_has_its_own_records, "second_handle_has_its_own_records",
             "StoreConformance.SharesItsRecordsWithASecondHandle"},
    RuleCase{BrokenRule::handle_trusts_its_memory, "handle_trusts_its_memory",
             "StoreConformance.HandsATurnFromOneHandleToAnother"},
    RuleCase{BrokenRule::record_survives_rollback, "record_survives_rollback",
             "TransactionalStoreConformance.RollsTheRecordAndTheEffectBackTogether"},
    RuleCase{BrokenRule::effect_survives_rollback, "effect_survives_rollback",
             "TransactionalStoreConformance.RollsTheRecordAndTheEffectBackTogether"},
    RuleCase{BrokenRule::record_shown_before_commit, "record_shown_before_commit",
             "TransactionalStoreConformance.ShowsNothingBeforeTheCommit"},
    RuleCase{BrokenRule::effect_lost_at_commit, "effect_lost_at_commit",
             "TransactionalStoreConformance.CommitsTheRecordAndTheEffectTogether"},
    RuleCase{BrokenRule::transaction_ignores_fingerprints, "transaction_ignores_fingerprints",
             "TransactionalStoreConformance.JudgesFingerprintsWithinATransaction"},
    RuleCase{BrokenRule::transaction_does_not_replay, "transaction_does_not_replay",
             "TransactionalStoreConformance.ReplaysWithinATransaction"},
    RuleCase{BrokenRule::calls_do_not_wait_for_transactions, "calls_do_not_wait_for_transactions",
             "TransactionalStoreConformance.LetsNobodyInBetweenBeginAndCommit"},
    RuleCase{BrokenRule::transaction_takes_what_another_owns, "transaction_takes_what_another_owns",
             "TransactionalStoreConformance.RefusesWithinATransactionWhatAnotherOwns"},
    RuleCase{BrokenRule::transaction_completes_for_anyone, "transaction_completes_for_anyone",
             "TransactionalStoreConformance.RefusesACompletionOfAnotherWithinATransaction"},
    RuleCase{BrokenRule::transactions_do_not_wait, "transactions_do_not_wait",
             "TransactionalStoreConformance.HasOneEffectHoweverManyTransactionsTryAtOnce"},
    RuleCase{BrokenRule::rollback_leaves_the_key_taken, "rollback_leaves_the_key_taken",
             "TransactionalStoreConformance.LetsTheNextOneInAfterARollBack"},
    RuleCase{BrokenRule::adopted_commit_left_open, "adopted_commit_left_open",
             "TransactionalStoreConformance.CommitsWhatItBeganOnTheCallersConnection"},
    RuleCase{BrokenRule::adopted_called_joined, "adopted_called_joined",
             "TransactionalStoreConformance.CommitsWhatItBeganOnTheCallersConnection"},
    RuleCase{BrokenRule::adopted_rollback_commits, "adopted_rollback_commits",
             "TransactionalStoreConformance.RollsBackWhatItBeganOnTheCallersConnection"},
    RuleCase{BrokenRule::joined_not_recognised, "joined_not_recognised",
             "TransactionalStoreConformance.LeavesTheCallersTransactionToTheCaller"},
    RuleCase{BrokenRule::joined_commit_lost, "joined_commit_lost",
             "TransactionalStoreConformance.LeavesTheCallersTransactionToTheCaller"},
    RuleCase{BrokenRule::joined_commit_commits_all, "joined_commit_commits_all",
             "TransactionalStoreConformance.LosesAJoinedCommitWhenTheCallerRollsBack"},
    RuleCase{BrokenRule::joined_rollback_keeps_everything, "joined_rollback_keeps_everything",
             "TransactionalStoreConformance.RollsBackToWhereItJoinedTheCallersTransaction"},
    RuleCase{BrokenRule::joined_rollback_takes_everything, "joined_rollback_takes_everything",
             "TransactionalStoreConformance.RollsBackToWhereItJoinedTheCallersTransaction"},
    RuleCase{BrokenRule::joined_sees_the_committed_only, "joined_sees_the_committed_only",
             "TransactionalStoreConformance.SeesWhatWasJoinedBeforeInTheCallersTransaction"},
};
static_assert(rule_cases.size() == static_cast<std::size_t>(rule_cases.back().rule),
              "every rule has a case");

constexpr const char* rule_variable = "IDEMPOTENCY_BROKEN_RULE";

/// The rule that this process was started to break.
BrokenRule broken_rule() {
  const char* name = std::getenv(rule_variable);
  if (name == nullptr) return BrokenRule::none;
  const auto* found = std::find_if(rule_cases.begin(), rule_cases.end(),
                                   [name](const RuleCase& rule) { return rule.name == name; });
  if (found == rule_cases.end()) throw std::runtime_error("no such rule to break");
  return found->rule;
}

class ReferenceFixture {
 public:
  ReferenceStore& store() { return first_; }
  ReferenceStore& other_store() { return second_; }
  void advance(std::chrono::milliseconds span) { clock_.advance(span); }
  void remove_deadline(const Key& key) { first_.remove_deadline(key); }
  static void add_business_row(ReferenceTransaction& transaction) {
    transaction.add_business_row();
  }
  std::size_t business_rows() { return first_.business_rows(); }
  ReferenceApplication& application() { return application_; }

 private:
  ManualClock clock_;
  std::shared_ptr<ReferenceState> state_ = std::make_shared<ReferenceState>(broken_rule());
  ReferenceStore first_{state_, clock_};
  ReferenceStore second_{broken_rule() == BrokenRule::second_handle_has_its_own_records
                             ? std::make_shared<ReferenceState>(BrokenRule::none)
                             : state_,
                         clock_};
  ReferenceApplication application_{first_};
};

INSTANTIATE_TYPED_TEST_SUITE_P(ReferenceStore, StoreConformance, ReferenceFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(ReferenceStore, AdminStoreConformance, ReferenceFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(ReferenceStore, SettlementConformance, ReferenceFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(ReferenceStore, BatchStoreConformance, ReferenceFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(ReferenceStore, BatchBeginStoreConformance, ReferenceFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(ReferenceStore, TransactionalStoreConformance, ReferenceFixture);

class BrokenStore : public ::testing::TestWithParam<RuleCase> {};

TEST_P(BrokenStore, IsNoticedByTheTestThatIsNamedForItsRule) {
  const RuleCase& rule = GetParam();
  const std::string test(rule.test);
  const std::string full_name =
      "ReferenceStore/" + test.substr(0, test.find('.')) + "/0" + test.substr(test.find('.'));
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();

  ChildProcess child =
      ChildProcess::start({program, "--gtest_filter=" + full_name, "--gtest_color=no"},
                          {std::string(rule_variable) + "=" + std::string(rule.name)});
  const std::vector<std::string> lines = child.remaining_lines();
  const ProcessEnd end = child.wait();

  const bool named = std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.starts_with("[  FAILED  ] " + full_name);
  });
  std::string said;
  for (const std::string& line : lines)
    said += line + '\n';
  EXPECT_EQ(end, (ProcessEnd{1, 0})) << said;
  EXPECT_TRUE(named) << said;
}

INSTANTIATE_TEST_SUITE_P(EveryRule, BrokenStore, ::testing::ValuesIn(rule_cases),
                         [](const auto& rule) { return std::string(rule.param.name); });

}  // namespace
}  // namespace idempotency::testing
