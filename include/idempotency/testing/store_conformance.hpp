#pragma once

// The contract of a store, as GoogleTest suites that anybody can run on a store of their own:
//
//   struct MyFixture {                                        // one for each test
//     idempotency::testing::ManualClock clock;
//     MyStore my_store{&clock};
//     MyStore& store() { return my_store; }
//     void advance(std::chrono::milliseconds span) { clock.advance(span); }
//   };
//   using namespace idempotency::testing;
//   INSTANTIATE_TYPED_TEST_SUITE_P(MyStore, StoreConformance, MyFixture);
//
// `AdminStoreConformance` and `SettlementConformance`, `BatchStoreConformance`, `BatchBeginStoreConformance`,
// `IssuingStoreConformance`, `TransactionalStoreConformance` are for stores that can do more; instantiate those that fit. What else a fixture may have is said at `ConformanceFixture`.

#include "idempotency/testing/conformance_admin.hpp"
#include "idempotency/testing/conformance_batch.hpp"
#include "idempotency/testing/conformance_batch_begin.hpp"
#include "idempotency/testing/conformance_concurrency.hpp"
#include "idempotency/testing/conformance_fingerprint.hpp"
#include "idempotency/testing/conformance_fixture.hpp"
#include "idempotency/testing/conformance_identity.hpp"
#include "idempotency/testing/conformance_issue.hpp"
#include "idempotency/testing/conformance_life.hpp"
#include "idempotency/testing/conformance_ownership.hpp"
#include "idempotency/testing/conformance_settlement.hpp"
#include "idempotency/testing/conformance_time.hpp"
#include "idempotency/testing/conformance_transaction.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

REGISTER_TYPED_TEST_SUITE_P(
    StoreConformance, LetsTheFirstCallerIn, KnowsNothingOfAKeyThatNobodyHasUsed,
    RefusesADuplicateWhileTheLeaseRuns, ReplaysTheResultToOthersAndToTheOwner,
    ReplaysAPermanentFailure, LetsTheNextCallerInAfterARetryableFailure,
    TellsTheCallThatFailedOfItsFailureInsteadOfStartingItAgain, LetsTheNextCallerInAfterARelease,
    BlocksEverybodyWhileTheOutcomeIsUncertain, TellsSinceWhenTheOutcomeIsUncertain,
    HandsOverWhenALeaseRanOutUnderTakeOver, BecomesUncertainWhenALeaseRanOutUnderHold,
    ObeysTheRecordsHoldAndNotTheCallersMode, ObeysTheRecordsTakeOverAndNotTheCallersMode,
    WritesTheModeOfEachNewOwnerIntoTheRecord, HoldsARecordWhoseEffectIsMarked,
    KeepsTheEffectMarkThroughRenewalsAndRepeatedCalls, DoesNotHandTheEffectMarkToTheNextOwner,
    LetsTheOwnerSettleItsOwnDoubt, BelievesALateOwnerUnderHold, RaisesFenceAndAttemptsWithEveryTurn,
    NeverForgetsARunningRecord, NeverForgetsAnUncertainRecord, StartsANewLifeWhenTheRetentionIsOver,
    ShowsWhatARunningRecordHolds, ShowsWhatAFinishedRecordHolds,
    GrantsARepeatedBeginTheSameTurnAgain, CountsTheLeaseOfARepeatedBeginAnew,
    StoresARepeatedCompletionAndKeepsTheFirstResult, StoresRepeatedFailuresAndKeepsTheFirst,
    StoresARepeatedReleaseDoubtMarkAndRenewal, RefusesEveryWriteOfAnOwnerThatWasReplaced,
    DoesNotGiveALeaseBackToALateHeartbeat, RefusesEveryWriteAtAnotherFence,
    RefusesEveryWriteOfADuplicate, LetsNobodyElseSettleADoubt,
    RefusesWritesToAKeyThatNobodyHasUsedAndCreatesNothing,
    ChangesNoFinishedRecordNotEvenForItsOwner, LetsNoLateWriteReopenAReleasedRecord,
    RefusesWritesThatAnUncertainRecordDoesNotAllow, RefusesWritesOfAnEarlierLife,
    StartsNothingForALateCopyOfBegin, LetsAnOwnerGoOnWhoseLeaseRanOutUnnoticed,
    TellsAReleaseOfTheOwnerFromOneOfAStranger, SharesItsRecordsWithASecondHandle,
    HandsATurnFromOneHandleToAnother, TellsKeysApartByEveryByte, TellsBusinessTypesApart,
    KeepsKeysOfTheGreatestLengthWhole, TellsPartsOfKeysApart, ReturnsResultsAsTheyWereStored,
    TellsAnAbsentResultFromAnEmptyOne, ReturnsAResultOfOneMebibyte, ReturnsFailuresAsTheyWereStored,
    ForgetsAFailureWhenTheNextTurnBegins, KeepsTheTraceOfTheFirstCaller,
    KeepsItsBirthdayThroughTakeOverAndCompletion, EndsALeaseWhenItIsOver,
    EndsALeaseUnderHoldWhenItIsOver, NeverRoundsALeaseToNothing, NeverRoundsARetention,
    TellsHowMuchOfALeaseRemains, CountsARenewedLeaseFromTheRenewal,
    CountsANewOwnersLeaseFromItsOwnBegin, KeepsRetentionsApartFromLeasesAndFromEachOther,
    CountsTheRetentionFromTheCompletion, DoesNotCountTheRetentionAnewForAReplayOrARepeatedWrite,
    AcceptsTheLongestTimes, NeverStealsARecordWithoutADeadline,
    RefusesAnotherRequestOnAFinishedRecord, RefusesAnotherRequestOnAnUnfinishedRecord,
    ChangesNothingForAMismatch, JudgesTheRetentionBeforeTheFingerprint,
    ComparesTheFingerprintOfTheOwnerToo, ComparesNothingWhenEitherSideHasNoFingerprint,
    KeepsTheFingerprintThroughEveryChange, TellsTheRecordsFingerprintWithItsAnswer,
    RefusesToCompareAnUnknownScheme, ComparesUnderTheSchemeOfTheRecord,
    StoresTheFingerprintUnderTheCurrentScheme, LetsOneOfManyConcurrentCallersIn,
    GrantsAllConcurrentCopiesOfOneCallTheSameTurn, LetsOneOfManyConcurrentCallersTakeOver,
    LetsEitherALateCompletionOrATakeOverWin, KeepsManyKeysApartUnderLoad);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
