#include "idempotency/error.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace idempotency {
namespace {

const std::vector<Errc> all_codes = {
    Errc::invalid_key,
    Errc::missing_key,
    Errc::invalid_fingerprint,
    Errc::unknown_fingerprint_scheme,
    Errc::invalid_policy,
    Errc::invalid_argument,
    Errc::store_unavailable,
    Errc::store_reply_lost,
    Errc::store_busy,
    Errc::store_full,
    Errc::store_refused,
    Errc::store_corrupt,
    Errc::too_large,
    Errc::used_after_fork,
    Errc::store_undecidable,
    Errc::nested_transaction,
    Errc::transaction_lost,
    Errc::commit_unknown,
    Errc::statement_failed,
    Errc::codec_mismatch,
    Errc::codec_corrupt,
    Errc::codec_unencodable,
    Errc::no_value,
    Errc::lease_too_short,
    Errc::lease_lost,
    Errc::permanent_failure,
    Errc::retryable_failure,
    Errc::outcome_unknown,
};

TEST(Errc, HasANameOfItsOwnForEveryCode) {
  std::set<std::string_view> names;

  for (const Errc code : all_codes)
    names.insert(to_string(code));

  EXPECT_EQ(names.size(), all_codes.size());
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Errc, NamesANumberThatIsNoCodeUnknown) {
  EXPECT_EQ(to_string(static_cast<Errc>(255)), "unknown");
}

TEST(Errc, KeepsTheNumbersThatLogsAndMetricsKnow) {
  EXPECT_EQ(static_cast<int>(Errc::invalid_key), 1);
  EXPECT_EQ(static_cast<int>(Errc::store_unavailable), 20);
  EXPECT_EQ(static_cast<int>(Errc::nested_transaction), 40);
  EXPECT_EQ(static_cast<int>(Errc::codec_mismatch), 60);
  EXPECT_EQ(static_cast<int>(Errc::lease_too_short), 80);
  EXPECT_EQ(static_cast<int>(Errc::outcome_unknown), 102);
}

TEST(Errc, IsNeverSafeToRetryWhereTheOutcomeIsUnknownAndNothingBlocksTheRetry) {
  EXPECT_FALSE(safe_to_retry(Errc::outcome_unknown));
  EXPECT_TRUE(effect_possible(Errc::outcome_unknown));
}

TEST(Errc, MayHaveHadAnEffectOnlyWhereAReplyWasLost) {
  std::vector<Errc> possible;

  for (const Errc code : all_codes) {
    if (effect_possible(code)) possible.push_back(code);
  }

  EXPECT_EQ(possible,
            (std::vector{Errc::store_reply_lost, Errc::commit_unknown, Errc::outcome_unknown}));
}

TEST(Error, KeepsItsDetailOutOfWhat) {
  const Error error(Errc::store_refused, "Check the rights.", "user bob at host db1");

  EXPECT_STREQ(error.what(), "Check the rights.");
  EXPECT_EQ(error.detail(), "user bob at host db1");
  EXPECT_EQ(error.code(), Errc::store_refused);
}

TEST(Error, AnswersLikeItsCode) {
  const Error lost(Errc::store_reply_lost, "Repeat the call.");
  const Error full(Errc::store_full, "Add room.");

  EXPECT_TRUE(lost.safe_to_retry());
  EXPECT_TRUE(lost.effect_possible());
  EXPECT_TRUE(full.safe_to_retry());
  EXPECT_FALSE(full.effect_possible());
}

TEST(Error, IsThrownByHandlersInThreeKinds) {
  EXPECT_EQ(PermanentFailure("card expired").code(), Errc::permanent_failure);
  EXPECT_EQ(RetryableFailure("try later").code(), Errc::retryable_failure);
  EXPECT_EQ(OutcomeUnknown("no answer").code(), Errc::outcome_unknown);
}

}  // namespace
}  // namespace idempotency
