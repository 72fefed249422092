#include "idempotency/policy.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>

#include "idempotency/error.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;

Errc code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::no_value;
}

Error error_of_json(const std::string& text) {
  try {
    static_cast<void>(PolicyTable::from_json(text));
  } catch (const Error& error) {
    return error;
  }
  return Error(Errc::no_value, "nothing was thrown");
}

TEST(PolicyTable, KnowsPaymentOrderAndEverythingElse) {
  const PolicyTable table;

  EXPECT_EQ(table.find("payment").success_retention, 30 * 24h);
  EXPECT_EQ(table.find("payment").on_expired_lease, RecordMode::hold);
  EXPECT_EQ(table.find("order").success_retention, 7 * 24h);
  EXPECT_EQ(table.find("order").on_expired_lease, RecordMode::take_over);
  EXPECT_EQ(table.find("anything").success_retention, 1h);
  EXPECT_EQ(table.find("anything").on_store_failure, OnStoreFailure::refuse);
}

TEST(PolicyTable, ChangesOnlyWhatIsSaidOfAType) {
  PolicyTable table;

  table.set("payment", {.lease = 5s}).set("payment", {.wait = 1s}).set("refund", {.lease = 7s});

  EXPECT_EQ(table.find("payment").lease, 5s);
  EXPECT_EQ(table.find("payment").wait, 1s);
  EXPECT_EQ(table.find("payment").on_expired_lease, RecordMode::hold);
  EXPECT_EQ(table.find("payment").success_retention, 30 * 24h);
  EXPECT_EQ(table.find("refund").success_retention, 1h);
}

TEST(PolicyTable, SaysHowADurationIsWritten) {
  try {
    static_cast<void>(PolicyTable::from_json(R"({"payment": {"lease": 3}})"));
    FAIL() << "a duration without a unit was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_policy);
    EXPECT_NE(std::string(error.what()).find("30s"), std::string::npos) << error.what();
  }
}

TEST(PolicyTable, ReplacesAWholePolicy) {
  PolicyTable table;

  table.replace("payment", {.lease = 5s}).replace_default({.lease = 6s});

  EXPECT_EQ(table.find("payment").lease, 5s);
  EXPECT_EQ(table.find("payment").on_expired_lease, RecordMode::take_over);
  EXPECT_EQ(table.find("other").lease, 6s);
}

TEST(PolicyTable, SetsThePolicyOfEachType) {
  PolicyTable table;

  table.set("payment", {.lease = 5s}).set("refund", {.lease = 7s}).set_default({.lease = 9s});

  EXPECT_EQ(table.find("payment").lease, 5s);
  EXPECT_EQ(table.find("refund").lease, 7s);
  EXPECT_EQ(table.find("other").lease, 9s);
}

// ID-01: a lease of zero is refused where it is written down.
TEST(Policy, RefusesALeaseOfZero) {
  PolicyTable table;

  EXPECT_EQ(code_of([&] { table.set("payment", {.lease = 0ms}); }), Errc::invalid_policy);
  EXPECT_EQ(code_of([] { validate({.lease = -1ms}); }), Errc::invalid_policy);
  EXPECT_EQ(code_of([] { validate({.lease = 25h, .max_total_hold = 48h}); }), Errc::invalid_policy);
}

TEST(Policy, RefusesDurationsThatMakeNoSense) {
  EXPECT_EQ(code_of([] { validate({.success_retention = 0ms}); }), Errc::invalid_policy);
  EXPECT_EQ(code_of([] { validate({.failure_retention = 0ms}); }), Errc::invalid_policy);
  EXPECT_EQ(code_of([] { validate({.wait = -1ms}); }), Errc::invalid_policy);
  EXPECT_EQ(code_of([] { validate({.success_retention = std::chrono::milliseconds::max()}); }),
            Errc::invalid_policy);
}

TEST(Policy, RefusesContradictions) {
  EXPECT_EQ(code_of([] { validate({.lease = 10s, .max_total_hold = 5s}); }), Errc::invalid_policy);
  EXPECT_EQ(code_of([] {
              validate({.on_expired_lease = RecordMode::hold,
                        .on_store_failure = OnStoreFailure::run_unprotected});
            }),
            Errc::invalid_policy);
}

TEST(PolicyOverride, ChangesOnlyWhatItNames) {
  const Policy base = PolicyTable().find("payment");

  const Policy merged = PolicyOverride{.wait = 2s, .max_result_bytes = 10}.over(base);

  Policy expected = base;
  expected.wait = 2s;
  expected.max_result_bytes = 10;
  EXPECT_EQ(merged, expected);
}

TEST(PolicyFile, ReadsEveryMember) {
  const PolicyTable table = PolicyTable::from_json(R"({
    "payment": {"lease": "45s", "success_retention": "90d", "failure_retention": "12h", "wait": "500ms",
                "on_expired_lease": "hold", "on_store_failure": "refuse", "max_result_bytes": 4096,
                "max_total_hold": "15m"},
    "*": {"lease": "5s", "on_store_failure": "run_unprotected"}
  })");

  const Policy expected{.lease = 45s,
                        .success_retention = 90 * 24h,
                        .failure_retention = 12h,
                        .wait = 500ms,
                        .on_expired_lease = RecordMode::hold,
                        .on_store_failure = OnStoreFailure::refuse,
                        .max_result_bytes = 4096,
                        .max_total_hold = 15min};
  EXPECT_EQ(table.find("payment"), expected);
  EXPECT_EQ(table.find("order").success_retention, 7 * 24h);
  EXPECT_EQ(table.find("other").lease, 5s);
  EXPECT_EQ(table.find("other").on_store_failure, OnStoreFailure::run_unprotected);
}

TEST(PolicyFile, KeepsBuiltInValuesOfWhatItDoesNotSay) {
  const PolicyTable table = PolicyTable::from_json(R"({"payment": {"lease": "1s"}})");

  EXPECT_EQ(table.find("payment").on_expired_lease, RecordMode::hold);
  EXPECT_EQ(table.find("payment").success_retention, 30 * 24h);
}

TEST(PolicyFile, RefusesUnknownNamesWithTheirPlace) {
  const Error error = error_of_json("{\n  \"payment\": {\n    \"leese\": \"1s\"\n  }\n}");

  EXPECT_EQ(error.code(), Errc::invalid_policy);
  EXPECT_EQ(error.detail(), "line 3, /payment/leese");
  EXPECT_NE(std::string(error.what()).find("lease"), std::string::npos);
}

TEST(PolicyFile, RefusesContradictionsWithTheirPlace) {
  const Error error =
      error_of_json("{\n\"x\": {\"lease\": \"10s\",\n \"max_total_hold\": \"1s\"}\n}");

  EXPECT_EQ(error.code(), Errc::invalid_policy);
  EXPECT_EQ(error.detail(), "line 3, /x");
}

TEST(PolicyFile, RefusesWrongKindsAndUnits) {
  for (const char* text : {R"({"x": {"lease": 30}})",
                           R"({"x": {"lease": "30"}})",
                           R"({"x": {"lease": "-1s"}})",
                           R"({"x": {"lease": "1.5s"}})",
                           R"({"x": {"lease": "9999999999999999d"}})",
                           R"({"x": {"lease": "1y"}})",
                           R"({"x": {"lease": null}})",
                           R"({"x": {"lease": true}})",
                           R"({"x": {"lease": ["1s"]}})",
                           R"({"x": {"lease": {"s": 1}}})",
                           R"({"x": "1s"})",
                           R"({"x": {"on_expired_lease": "steal"}})",
                           R"({"x": {"max_result_bytes": -1}})",
                           R"({"x": {"max_result_bytes": 1.5}})",
                           R"({"x": {"lease": "1s", "lease": "2s"}})",
                           R"({"x": {}, "x": {}})",
                           R"({"bad type": {}})",
                           R"([])",
                           R"({"x": {)",
                           ""}) {
    EXPECT_EQ(error_of_json(text).code(), Errc::invalid_policy) << text;
  }
}

TEST(PolicyFile, SaysWhatAMemberWants) {
  const auto wants = [](const std::string& member, const std::string& words) {
    const Error error = error_of_json(R"({"x": {)" + member + "}}");
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos)
        << member << ": " << error.what();
  };
  wants(R"("max_result_bytes": "64k")", "max_result_bytes is a number of bytes");
  wants(R"("max_result_bytes": -1)", "max_result_bytes is a whole number");
  wants(R"("max_result_bytes": [])", "max_result_bytes is a whole number");
  wants(R"("lease": 5)", "a duration is text with a unit");
  wants(R"("lease": null)", "a duration is text with a unit");
  wants(R"("lease": "99999999999999d")", "not too large");
  wants(R"("on_expired_lease": 5)", "the value is text");
  wants(R"("on_expired_lease": true)", "the value is text");
  wants(R"("leese": "5s")", "a policy's member is unknown");
  wants(R"("leese": 5)", "a policy's member is unknown");
  wants(R"("leese": {})", "two levels");
}

TEST(PolicyFile, SaysWhichFileCannotBeRead) {
  for (const std::string path : {"no/such/policies.json", "/"}) {
    try {
      static_cast<void>(PolicyTable::from_json_file(path));
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_EQ(error.detail(), path);
    }
  }
}

}  // namespace
}  // namespace idempotency
