#include "idempotency/edges/grpc.hpp"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/test/server_context_test_spouse.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idempotency/guard.hpp"
#include "idempotency/observer.hpp"
#include "idempotency/patterns/token_service.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "support/error_of.hpp"
#include "support/event.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using google::protobuf::BytesValue;
using google::protobuf::StringValue;
using google::protobuf::Struct;
using grpc::StatusCode;
using testing::Fault;
using testing::FaultyStore;
using testing::ManualClock;
using testing_support::code_of;
using testing_support::Event;

constexpr std::string_view charge = "/shop.Payments/Charge";

StringValue text(std::string value) {
  StringValue message;
  message.set_value(std::move(value));
  return message;
}

/// One call as a server would make it, without a server.
class Attempt {
 public:
  explicit Attempt(const std::string& key = "k", const std::string& user = "alice") {
    if (!key.empty()) with("idempotency-key", key);
    if (!user.empty()) with("user", user);
  }
  Attempt& with(const std::string& name, const std::string& value) {
    spouse_.AddClientMetadata(name, value);
    return *this;
  }
  /// Empty without one; a failed test with several.
  [[nodiscard]] std::string told(const std::string& name) const {
    const auto metadata = spouse_.GetTrailingMetadata();
    EXPECT_LE(metadata.count(name), 1U) << name;
    const auto found = metadata.find(name);
    return found == metadata.end() ? "" : found->second;
  }
  [[nodiscard]] bool is_replay() const { return told("idempotent-replayed") == "true"; }

  grpc::ServerContext context;
  StringValue request = text("100");
  StringValue reply;
  grpc::Status status;

 private:
  grpc::testing::ServerContextTestSpouse spouse_{&context};
};

std::string user_of(const grpc::ServerContextBase& context) {
  const auto found = context.client_metadata().find("user");
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

/// A service behind the edge; tests count how often its handler ran.
class GrpcTest : public ::testing::Test {
 protected:
  using Shop = GrpcIdempotency<IdempotencyGuard<FaultyStore<MemoryStore>>>;
  using Handler = std::function<grpc::Status(StringValue&)>;

  [[nodiscard]] Shop shop(GrpcOptions options = {}) {
    if (!options.principal) options.principal = user_of;
    return Shop(guard, std::move(options));
  }
  void call(Shop& shop, Attempt& attempt, const GrpcCall& call, const Handler& handler) {
    attempt.status = shop.run(attempt.context, call, attempt.request, attempt.reply, [&] {
      ++runs;
      return handler(attempt.reply);
    });
  }
  void pay(Shop& shop, Attempt& attempt, const GrpcCall& what = {charge}) {
    call(shop, attempt, what, [this](StringValue& reply) {
      reply.set_value("receipt-" + std::to_string(runs));
      return grpc::Status::OK;
    });
  }
  void expect_problem(const Attempt& attempt, GrpcProblem problem, StatusCode code,
                      const std::string& pushback = "-1") {
    EXPECT_EQ(attempt.status.error_code(), code);
    EXPECT_EQ(attempt.told("idempotency-problem"), to_string(problem));
    EXPECT_EQ(attempt.told("idempotency-advice"), to_string(advice_of(problem)));
    EXPECT_EQ(attempt.told("grpc-retry-pushback-ms"), pushback);
    EXPECT_FALSE(attempt.is_replay());
  }
  /// What becomes of one more call.
  void expect_next(Shop& shop, GrpcProblem problem, StatusCode code, const std::string& key = "k") {
    Attempt next(key);
    pay(shop, next);
    expect_problem(next, problem, code);
  }

  ManualClock clock;
  MemoryStore memory{{.clock = &clock}};
  FaultyStore<MemoryStore> store{memory};
  IdempotencyGuard<FaultyStore<MemoryStore>> guard{store};
  int runs = 0;
};

TEST(GrpcStatusPolicy, HasTheDocumentedDefaults) {
  const GrpcStatusPolicy policy;
  for (const StatusCode code :
       {StatusCode::OK, StatusCode::INVALID_ARGUMENT, StatusCode::NOT_FOUND,
        StatusCode::ALREADY_EXISTS, StatusCode::PERMISSION_DENIED, StatusCode::FAILED_PRECONDITION,
        StatusCode::OUT_OF_RANGE, StatusCode::UNIMPLEMENTED})
    EXPECT_EQ(policy.of(code), GrpcMeaning::recorded) << code;
  for (const StatusCode code : {StatusCode::RESOURCE_EXHAUSTED, StatusCode::ABORTED,
                                StatusCode::UNAVAILABLE, StatusCode::UNAUTHENTICATED})
    EXPECT_EQ(policy.of(code), GrpcMeaning::retryable) << code;
  for (const StatusCode code :
       {StatusCode::CANCELLED, StatusCode::UNKNOWN, StatusCode::DEADLINE_EXCEEDED,
        StatusCode::INTERNAL, StatusCode::DATA_LOSS, static_cast<StatusCode>(17),
        static_cast<StatusCode>(-1), StatusCode::DO_NOT_USE})
    EXPECT_EQ(policy.of(code), GrpcMeaning::uncertain) << code;
}

TEST(GrpcStatusPolicy, CanBeChangedButForOk) {
  GrpcStatusPolicy policy;
  policy.set(StatusCode::INTERNAL, GrpcMeaning::retryable)
      .set(StatusCode::OK, GrpcMeaning::recorded);

  EXPECT_EQ(policy.of(StatusCode::INTERNAL), GrpcMeaning::retryable);
  EXPECT_EQ(policy.of(StatusCode::UNKNOWN), GrpcMeaning::uncertain);
  EXPECT_EQ(GrpcStatusPolicy::recording_all().of(StatusCode::INTERNAL), GrpcMeaning::recorded);
  EXPECT_EQ(code_of([&] { policy.set(StatusCode::OK, GrpcMeaning::retryable); }),
            Errc::invalid_argument);
  for (const StatusCode code : {static_cast<StatusCode>(17), static_cast<StatusCode>(-1)})
    EXPECT_EQ(code_of([&] { policy.set(code, GrpcMeaning::recorded); }), Errc::invalid_argument);
}

TEST(GrpcProblemStatuses, AreTheDocumentedOnes) {
  const GrpcProblemStatuses statuses;
  EXPECT_EQ(statuses.of(GrpcProblem::key_missing), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(statuses.of(GrpcProblem::key_malformed), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(statuses.of(GrpcProblem::key_not_issued), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(statuses.of(GrpcProblem::principal_missing), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(statuses.of(GrpcProblem::key_reused), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(statuses.of(GrpcProblem::in_progress), StatusCode::UNAVAILABLE);
  EXPECT_EQ(statuses.of(GrpcProblem::store_unavailable), StatusCode::UNAVAILABLE);
  EXPECT_EQ(statuses.of(GrpcProblem::outcome_unknown), StatusCode::UNKNOWN);
  EXPECT_EQ(statuses.of(GrpcProblem::result_not_kept), StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(statuses.of(GrpcProblem::failed), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(statuses.of(GrpcProblem::failed_for_now), StatusCode::UNAVAILABLE);
  EXPECT_EQ(statuses.of(GrpcProblem::record_unreadable), StatusCode::INTERNAL);
}

TEST(GrpcOptions, AreRefusedWhenTheyAreNone) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  const auto code_of_options = [&](GrpcOptions options) {
    return code_of([&] { const GrpcIdempotency edge(guard, std::move(options)); });
  };

  EXPECT_EQ(code_of_options({.longest_key = 0}), Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.longest_key = 4097}), Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.type = ""}), Errc::invalid_key);
  EXPECT_EQ(code_of_options({.problem_statuses = {.key_reused = StatusCode::OK}}),
            Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.problem_statuses = {.failed = static_cast<StatusCode>(17)}}),
            Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.retry_after = -1ms}), Errc::invalid_argument);
  EXPECT_EQ(code_of_options({.longest_pushback = 0ms}), Errc::invalid_argument);
}

TEST(GrpcRecordKey, IsAnotherForEachTypePrincipalMethodAndKey) {
  const Key key = grpc_record_key("payment", "alice", charge, "k");

  EXPECT_EQ(key, grpc_record_key("payment", "alice", charge, "k"));
  EXPECT_NE(key, grpc_record_key("order", "alice", charge, "k"));
  EXPECT_NE(key, grpc_record_key("payment", "bob", charge, "k"));
  EXPECT_NE(key, grpc_record_key("payment", "alice", "/shop.Payments/Refund", "k"));
  EXPECT_NE(key, grpc_record_key("payment", "alice", charge, "l"));
  EXPECT_NE(grpc_record_key("payment", "a", "/b/c", "k"),
            grpc_record_key("payment", "a/b", "/c", "k"));
  EXPECT_EQ(code_of([&] { static_cast<void>(grpc_record_key("payment", "a", charge, "")); }),
            Errc::invalid_key);
}

/// A peer as gRPC would have authenticated it.
class Peer final : public grpc::AuthContext {
 public:
  explicit Peer(std::vector<std::string> names, std::string property = "name")
      : names_(std::move(names)), property_(std::move(property)) {}
  bool IsPeerAuthenticated() const override { return !property_.empty(); }
  std::vector<grpc::string_ref> GetPeerIdentity() const override {
    return {names_.begin(), names_.end()};
  }
  std::string GetPeerIdentityPropertyName() const override { return property_; }
  std::vector<grpc::string_ref> FindPropertyValues(const std::string&) const override { return {}; }
  grpc::AuthPropertyIterator begin() const override { return NoProperty{}; }
  grpc::AuthPropertyIterator end() const override { return NoProperty{}; }
  void AddProperty(const std::string&, const grpc::string_ref&) override {}
  bool SetPeerIdentityPropertyName(const std::string&) override { return false; }

 private:
  struct NoProperty : grpc::AuthPropertyIterator {
    NoProperty() : AuthPropertyIterator(nullptr, nullptr) {}
  };
  std::vector<std::string> names_;
  std::string property_;
};

TEST(GrpcPeerIdentity, IsAnotherForOtherNamesButNotForAnotherOrder) {
  const std::string identity = grpc_peer_identity(Peer({"a", "bc"}));

  EXPECT_FALSE(identity.empty());
  EXPECT_EQ(identity, grpc_peer_identity(Peer({"bc", "a"})));
  for (const Peer& other : {Peer({"ab", "c"}), Peer({"a"}), Peer({"abc"}), Peer({"a", "bc", "d"}),
                            Peer({"a", "bc"}, "other")})
    EXPECT_NE(identity, grpc_peer_identity(other));
}

TEST(GrpcPeerIdentity, IsEmptyForWhoeverIsNobody) {
  EXPECT_EQ(grpc_peer_identity(Peer({})), "");
  EXPECT_EQ(grpc_peer_identity(Peer({""})), "");
  EXPECT_EQ(grpc_peer_identity(Peer({"", ""})), "");
  EXPECT_EQ(grpc_peer_identity(Peer({"alice"}, "")), "");
}

TEST(GrpcFingerprint, DependsOnMethodAndMessageButNotOnTheOrderOfMaps) {
  Struct one;
  (*one.mutable_fields())["a"].set_number_value(1);
  (*one.mutable_fields())["b"].set_number_value(2);
  Struct other;
  (*other.mutable_fields())["b"].set_number_value(2);
  (*other.mutable_fields())["a"].set_number_value(1);

  EXPECT_EQ(grpc_fingerprint(charge, one), grpc_fingerprint(charge, other));
  EXPECT_NE(grpc_fingerprint(charge, one), grpc_fingerprint("/shop.Payments/Refund", one));
  (*other.mutable_fields())["a"].set_number_value(3);
  EXPECT_NE(grpc_fingerprint(charge, one), grpc_fingerprint(charge, other));
}

TEST(GrpcResponse, ComesBackAsItWasRecorded) {
  const GrpcResponse paid = grpc_response(text("receipt\xc3\xa4"));
  const GrpcResponse refused = grpc_response(
      grpc::Status(StatusCode::NOT_FOUND, std::string("no\0such", 7), std::string("\0\xff", 2)));

  EXPECT_EQ(decode_result<GrpcResponse>(encode_result(paid)), paid);
  EXPECT_EQ(paid.type, "google.protobuf.StringValue");
  EXPECT_EQ(decode_result<GrpcResponse>(encode_result(refused)), refused);
  EXPECT_EQ(code_of([] {
              static_cast<void>(encode_result(GrpcResponse{.code = static_cast<StatusCode>(17)}));
            }),
            Errc::codec_unencodable);
  std::string bytes = encode_result(GrpcResponse{});
  bytes.at(bytes.size() - 5) = 17;  // the code stands before four empty texts
  EXPECT_EQ(code_of([&] { static_cast<void>(decode_result<GrpcResponse>(bytes)); }),
            Errc::codec_corrupt);
}

TEST_F(GrpcTest, ReplaysTheReplyUnderQuotedAndBareKeys) {
  Shop payments = shop();
  Attempt first("\"k\"");
  pay(payments, first);
  Attempt second("k");
  second.reply.set_value("left over");
  pay(payments, second);

  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(first.status.ok() && second.status.ok());
  EXPECT_FALSE(first.is_replay());
  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(second.reply.SerializeAsString(), first.reply.SerializeAsString());
  for (const char* name : {"idempotency-problem", "idempotency-advice", "grpc-retry-pushback-ms"}) {
    EXPECT_EQ(first.told(name), "");
    EXPECT_EQ(second.told(name), "");
  }
}

TEST_F(GrpcTest, AsksTheStoreAsOftenAsTheGuardDoes) {
  Shop payments = shop();
  for (const char* key : {"k", "k", "", "a,b"}) {
    Attempt attempt(key);
    pay(payments, attempt);
  }

  EXPECT_EQ(store.calls(StoreCall::begin), 2U);
  EXPECT_EQ(store.calls(StoreCall::complete), 1U);
  EXPECT_EQ(store.calls(StoreCall::find), 0U);
}

TEST_F(GrpcTest, KeepsPrincipalsMethodsAndTypesApart) {
  Shop payments = shop();
  Attempt alice;
  Attempt bob("k", "bob");
  Attempt refund;
  Attempt typed;
  pay(payments, alice);
  pay(payments, bob);
  pay(payments, refund, {"/shop.Payments/Refund"});
  pay(payments, typed, {.method = charge, .type = "payment"});

  EXPECT_EQ(runs, 4);
  for (const Attempt* attempt : {&alice, &bob, &refund, &typed})
    EXPECT_FALSE(attempt->is_replay());
}

TEST_F(GrpcTest, RefusesCallsWithoutAUsableKey) {
  Shop payments = shop();
  Attempt missing("");
  pay(payments, missing);
  expect_problem(missing, GrpcProblem::key_missing, StatusCode::INVALID_ARGUMENT);

  for (const std::string& key :
       {std::string("\"\""), std::string("\"k"), std::string(256, 'k'), std::string(" ")})
    expect_next(payments, GrpcProblem::key_malformed, StatusCode::INVALID_ARGUMENT, key);
  Attempt twice;
  twice.with("idempotency-key", "k");
  pay(payments, twice);
  expect_problem(twice, GrpcProblem::key_malformed, StatusCode::INVALID_ARGUMENT);
  Attempt nobodys("k", "");
  pay(payments, nobodys);
  expect_problem(nobodys, GrpcProblem::principal_missing, StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(store.calls(StoreCall::begin), 0U);
}

TEST_F(GrpcTest, TakesQuotedKeysOnlyWhenStrict) {
  Shop payments = shop({.key_syntax = HttpKeySyntax::strict});
  Attempt quoted("\"k\"");
  pay(payments, quoted);

  EXPECT_TRUE(quoted.status.ok());
  expect_next(payments, GrpcProblem::key_malformed, StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcTest, KnowsNobodyWithoutAnAuthenticatedPeer) {
  GrpcIdempotency<IdempotencyGuard<FaultyStore<MemoryStore>>> payments(guard);
  Attempt attempt;
  pay(payments, attempt);
  expect_problem(attempt, GrpcProblem::principal_missing, StatusCode::UNAUTHENTICATED);

  Shop shared = shop({.anonymous = AnonymousRequests::share});
  Attempt first("k", "");
  Attempt second("k", "");
  pay(shared, first);
  pay(shared, second);
  EXPECT_TRUE(second.is_replay());
}

TEST_F(GrpcTest, CountsWhatIsPassedOnBecauseItsOptionalKeyIsMissing) {
  Shop payments = shop({.key_use = HttpKeyUse::optional});
  Shop untouched = shop({.key_use = HttpKeyUse::ignored});
  for (int time = 0; time < 2; ++time) {
    Attempt keyless("", "");
    keyless.status = payments.run(keyless.context, {charge}, keyless.request, keyless.reply,
                                  [&](Execution* execution) {
                                    ++runs;
                                    EXPECT_EQ(execution, nullptr);
                                    return grpc::Status::OK;
                                  });
    EXPECT_TRUE(keyless.status.ok());
    Attempt ignored;
    pay(untouched, ignored);
    EXPECT_FALSE(ignored.is_replay());
  }

  EXPECT_EQ(runs, 4);
  EXPECT_EQ(payments.passed_without_key(), 2U);
  EXPECT_EQ(untouched.passed_without_key(), 0U);
  EXPECT_EQ(store.calls(StoreCall::begin), 0U);
  expect_next(payments, GrpcProblem::key_malformed, StatusCode::INVALID_ARGUMENT, "\"");
}

TEST_F(GrpcTest, RefusesAnotherRequestUnderTheSameKeyAndSaysNothingOfTheFirst) {
  Shop payments = shop();
  Attempt first("secret-key");
  first.request = text("secret-request");
  pay(payments, first);
  Attempt other("secret-key");
  other.request = text("other");
  pay(payments, other);

  expect_problem(other, GrpcProblem::key_reused, StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(other.status.error_message().find("secret"), std::string::npos);
  EXPECT_EQ(other.reply.value(), "");
  EXPECT_EQ(runs, 1);
}

TEST_F(GrpcTest, ComparesChosenFieldsOnly) {
  Shop payments = shop();
  Attempt first;
  pay(payments, first, {.method = charge, .fingerprint = Fingerprint::of("order-1")});
  Attempt second;
  second.request = text("with another trace");
  pay(payments, second, {.method = charge, .fingerprint = Fingerprint::of("order-1")});
  Attempt other;
  pay(payments, other, {.method = charge, .fingerprint = Fingerprint::of("order-2")});

  EXPECT_TRUE(second.is_replay());
  expect_problem(other, GrpcProblem::key_reused, StatusCode::FAILED_PRECONDITION);
}

TEST_F(GrpcTest, SaysWhenToCallAgainWhileTheFirstIsRunning) {
  Shop patient = shop({.policy = {.lease = 20'001ms}, .longest_pushback = 60'000ms});
  Shop payments = shop({.policy = {.lease = 20'001ms}});
  Attempt first;
  Attempt meanwhile;
  Attempt soon;
  call(patient, first, {charge}, [&](StringValue&) {
    pay(patient, meanwhile);
    pay(payments, soon);
    return grpc::Status::OK;
  });

  expect_problem(meanwhile, GrpcProblem::in_progress, StatusCode::UNAVAILABLE, "20001");
  expect_problem(soon, GrpcProblem::in_progress, StatusCode::UNAVAILABLE, "1000");
  EXPECT_EQ(runs, 1);
}

TEST_F(GrpcTest, GivesThoseWhoWaitTheRecordedReply) {
  Shop payments = shop({.policy = {.wait = 30'000ms}});
  Event running;
  Event may_end;
  Attempt first;
  std::thread owner([&] {
    call(payments, first, {charge}, [&](StringValue& reply) {
      reply.set_value("receipt");
      running.set();
      static_cast<void>(may_end.wait());
      return grpc::Status::OK;
    });
  });
  ASSERT_TRUE(running.wait());
  std::thread releasing([&] { may_end.set(); });
  Attempt second;
  pay(payments, second);
  owner.join();
  releasing.join();

  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(second.reply.value(), "receipt");
  EXPECT_EQ(runs, 1);
}

/// Tells when a piece of the wait is over.
class PieceOfAWait final : public Observer {
 public:
  void on_finished(const Key&, RunStatus status, std::chrono::nanoseconds) noexcept override {
    if (status == RunStatus::in_progress) over.set();
  }
  Event over;
};

TEST_F(GrpcTest, GoesOnWaitingInPiecesUntilTheFirstHasEnded) {
  PieceOfAWait piece;
  IdempotencyGuard observed{store, {.observer = &piece}};
  GrpcIdempotency payments(observed, {.principal = user_of, .policy = {.wait = 30'000ms}});
  Event running;
  Attempt first;
  Attempt second;
  std::thread owner([&] {
    first.status = payments.run(first.context, {charge}, first.request, first.reply, [&] {
      running.set();
      EXPECT_TRUE(piece.over.wait());
      first.reply.set_value("receipt");
      return grpc::Status::OK;
    });
  });
  EXPECT_TRUE(running.wait());
  second.status = payments.run(second.context, {charge}, second.request, second.reply, [&] {
    ++runs;
    return grpc::Status::OK;
  });
  owner.join();

  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(second.reply.value(), "receipt");
  EXPECT_EQ(runs, 0);
}

TEST_F(GrpcTest, ReplaysRefusalsWithTextAndDetails) {
  Shop payments = shop();
  const grpc::Status no_stock(StatusCode::FAILED_PRECONDITION, "no stock", "\x08\x01 details");
  Attempt first;
  call(payments, first, {charge}, [&](StringValue& reply) {
    reply.set_value("half filled");
    return no_stock;
  });
  Attempt second;
  pay(payments, second);

  for (const Attempt* attempt : {&first, &second}) {
    EXPECT_EQ(attempt->status.error_code(), no_stock.error_code());
    EXPECT_EQ(attempt->status.error_message(), no_stock.error_message());
    EXPECT_EQ(attempt->status.error_details(), no_stock.error_details());
    EXPECT_EQ(attempt->told("idempotency-advice"), "new-key");
    EXPECT_EQ(attempt->told("idempotency-problem"), "");
  }
  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(runs, 1);
}

TEST_F(GrpcTest, RunsAgainAfterTransientFailuresAndThenReplays) {
  Shop payments = shop();
  for (const StatusCode code : {StatusCode::UNAVAILABLE, StatusCode::ABORTED,
                                StatusCode::RESOURCE_EXHAUSTED, StatusCode::UNAUTHENTICATED}) {
    Attempt failing;
    call(payments, failing, {charge}, [&](StringValue&) { return grpc::Status(code, "busy"); });
    EXPECT_EQ(failing.status.error_code(), code);
    EXPECT_EQ(failing.status.error_message(), "busy");
    EXPECT_EQ(failing.told("idempotency-advice"), "keep-key");
    EXPECT_EQ(failing.told("idempotency-problem"), "");
  }
  Attempt fifth;
  Attempt sixth;
  pay(payments, fifth);
  pay(payments, sixth);

  EXPECT_EQ(runs, 5);
  EXPECT_EQ(sixth.reply.value(), "receipt-5");
  EXPECT_TRUE(sixth.is_replay());
}

TEST_F(GrpcTest, BlocksTheKeyAfterAStatusThatMayHideAnEffect) {
  Shop payments = shop();
  for (const StatusCode code :
       {StatusCode::UNKNOWN, StatusCode::INTERNAL, StatusCode::DEADLINE_EXCEEDED,
        StatusCode::CANCELLED, StatusCode::DATA_LOSS, static_cast<StatusCode>(20)}) {
    const std::string key = "k" + std::to_string(code);
    runs = 0;
    Attempt first(key);
    call(payments, first, {charge}, [&](StringValue&) { return grpc::Status(code, "odd"); });
    EXPECT_EQ(first.status.error_code(), code);
    EXPECT_EQ(first.told("idempotency-advice"), "keep-key");
    expect_next(payments, GrpcProblem::outcome_unknown, StatusCode::UNKNOWN, key);
    EXPECT_EQ(runs, 1);
  }
}

TEST_F(GrpcTest, ReplaysEveryFailureWhenAllIsRecorded) {
  Shop payments = shop({.statuses = GrpcStatusPolicy::recording_all()});
  Attempt first;
  call(payments, first, {charge},
       [&](StringValue&) { return grpc::Status(StatusCode::INTERNAL, "bug"); });
  Attempt second;
  pay(payments, second);

  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(second.status.error_code(), StatusCode::INTERNAL);
  EXPECT_EQ(second.status.error_message(), "bug");
}

TEST_F(GrpcTest, TurnsTheLibrarysFailuresIntoStatuses) {
  Shop payments = shop();
  const auto throwing = [&](Attempt& attempt, auto failure) {
    call(payments, attempt, {charge}, [&](StringValue&) -> grpc::Status { throw failure; });
  };

  Attempt permanent("1");
  throwing(permanent, PermanentFailure("secret"));
  expect_problem(permanent, GrpcProblem::failed, StatusCode::FAILED_PRECONDITION);
  expect_next(payments, GrpcProblem::failed, StatusCode::FAILED_PRECONDITION, "1");
  Attempt later("2");
  throwing(later, RetryableFailure("secret"));
  expect_problem(later, GrpcProblem::failed_for_now, StatusCode::UNAVAILABLE, "1000");
  Attempt again("2");
  pay(payments, again);
  EXPECT_TRUE(again.status.ok());
  Attempt unknown("3");
  throwing(unknown, OutcomeUnknown("secret"));
  expect_problem(unknown, GrpcProblem::outcome_unknown, StatusCode::UNKNOWN);
  expect_next(payments, GrpcProblem::outcome_unknown, StatusCode::UNKNOWN, "3");
  for (const Attempt* attempt : {&permanent, &later, &unknown})
    EXPECT_EQ(attempt->status.error_message().find("secret"), std::string::npos);
}

TEST_F(GrpcTest, LetsOtherExceptionsOfTheHandlersPass) {
  Shop payments = shop({.type = "payment"});  // hold
  Attempt first("1");
  EXPECT_THROW(call(payments, first, {charge},
                    [](StringValue&) -> grpc::Status { throw std::runtime_error("bug"); }),
               std::runtime_error);
  expect_next(payments, GrpcProblem::outcome_unknown, StatusCode::UNKNOWN, "1");

  Attempt second("2");
  EXPECT_EQ(code_of([&] {
              call(payments, second, {charge}, [](StringValue&) -> grpc::Status {
                throw Error(Errc::store_unavailable, "the handler's own store");
              });
            }),
            Errc::store_unavailable);
}

TEST_F(GrpcTest, HandsTheExecutionToHandlersThatTakeIt) {
  Shop payments = shop({.type = "payment"});  // hold
  std::string derived;
  Attempt first;
  EXPECT_THROW(
      static_cast<void>(payments.run(first.context, {charge}, first.request, first.reply,
                                     [&](Execution* execution) -> grpc::Status {
                                       derived = execution->derived_key("charge");
                                       throw std::runtime_error("before the point of no return");
                                     })),
      std::runtime_error);
  Attempt second;
  second.status = payments.run(second.context, {charge}, second.request, second.reply,
                               [&](Execution* execution) {
                                 EXPECT_EQ(execution->derived_key("charge"), derived);
                                 EXPECT_EQ(execution->attempt(), 2U);
                                 return grpc::Status::OK;
                               });

  EXPECT_TRUE(second.status.ok());
}

TEST_F(GrpcTest, DoesNothingWhileTheStoreIsDown) {
  Shop payments = shop({.retry_after = 250ms});
  for (const Fault fault : {Fault::request_lost, Fault::busy, Fault::full, Fault::refused}) {
    store.on(StoreCall::begin).heal().fail_next(10, fault);
    Attempt attempt;
    pay(payments, attempt);
    expect_problem(attempt, GrpcProblem::store_unavailable, StatusCode::UNAVAILABLE, "250");
  }
  EXPECT_EQ(runs, 0);
  store.heal();
  Attempt attempt;
  pay(payments, attempt);
  EXPECT_TRUE(attempt.status.ok());
}

TEST_F(GrpcTest, GivesTheHandlersReplyWhenOnlyItsRecordIsLate) {
  Shop payments = shop();
  store.on(StoreCall::complete).fail_next(3, Fault::reply_lost);
  Attempt first;
  pay(payments, first);
  Attempt second;
  pay(payments, second);

  EXPECT_TRUE(first.status.ok());
  EXPECT_EQ(first.reply.value(), "receipt-1");
  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(runs, 1);
}

TEST_F(GrpcTest, DoesNotRunAgainForAReplyThatIsTooLargeOrUnreadable) {
  Shop payments = shop({.policy = {.max_result_bytes = 1'000}});
  for (const std::string& receipt : {std::string(1'001, 'x'), std::string("\xff not UTF-8")}) {
    const std::string key = "k" + std::to_string(receipt.size());
    runs = 0;
    Attempt first(key);
    call(payments, first, {charge}, [&](StringValue& reply) {
      reply.set_value(receipt);
      return grpc::Status::OK;
    });
    EXPECT_TRUE(first.status.ok());
    EXPECT_EQ(first.reply.value(), receipt);
    expect_next(payments, GrpcProblem::result_not_kept, StatusCode::ALREADY_EXISTS, key);
    EXPECT_EQ(runs, 1);
  }
}

TEST_F(GrpcTest, DoesNotReadARecordOfAnotherMessage) {
  Shop payments = shop();
  Attempt first;
  BytesValue bytes;
  bytes.set_value("receipt");
  first.status =
      payments.run(first.context, {charge}, first.request, bytes, [] { return grpc::Status::OK; });
  ASSERT_TRUE(first.status.ok());

  expect_next(payments, GrpcProblem::record_unreadable, StatusCode::INTERNAL);
  EXPECT_EQ(runs, 0);
}

TEST_F(GrpcTest, AnswersWhatSomebodyHasSettled) {
  Shop payments = shop();
  Attempt first;
  call(payments, first, {charge},
       [](StringValue&) -> grpc::Status { throw OutcomeUnknown("the bank is silent"); });
  const auto seen = memory.find(grpc_record_key("grpc", "alice", charge, "k"));
  ASSERT_TRUE(seen);
  ASSERT_EQ(memory.resolve(*seen, {.verdict = Resolution::Verdict::succeeded,
                                   .result = encode_result(grpc_response(text("settled")))}),
            WriteOutcome::stored);
  Attempt second;
  pay(payments, second);

  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(second.reply.value(), "settled");
}

TEST_F(GrpcTest, SaysThatAnotherIsAtItWhenTheLeaseWasLost) {
  Shop payments = shop();
  Attempt first;
  Attempt second;
  call(payments, first, {charge}, [&](StringValue& reply) {
    reply.set_value("too late");
    clock.advance(31s);
    pay(payments, second);
    return grpc::Status::OK;
  });

  EXPECT_TRUE(second.status.ok());
  EXPECT_TRUE(first.status.ok());
  EXPECT_TRUE(first.is_replay());
  EXPECT_EQ(first.reply.value(), "receipt-2");
}

TEST_F(GrpcTest, TakesIssuedKeysOnlyWhereTheyAreWanted) {
  TokenService tokens{store};
  Shop payments = shop({.type = "order", .tokens = &tokens});
  const std::string key = tokens.issue("order", "alice", 10min);

  expect_next(payments, GrpcProblem::key_not_issued, StatusCode::INVALID_ARGUMENT, "invented");
  Attempt foreign(key, "bob");
  pay(payments, foreign);
  expect_problem(foreign, GrpcProblem::key_not_issued, StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(runs, 0);
  Attempt first(key);
  Attempt second(key);
  pay(payments, first);
  pay(payments, second);

  EXPECT_TRUE(first.status.ok());
  EXPECT_FALSE(first.is_replay());
  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(second.reply.value(), "receipt-1");
  EXPECT_EQ(runs, 1);
}

TEST_F(GrpcTest, AnswersNoOtherMethodUnderAnIssuedKey) {
  TokenService tokens{store};
  Shop payments = shop({.type = "order", .tokens = &tokens});
  const std::string key = tokens.issue("order", "alice", 10min);
  const Fingerprint chosen =
      Fingerprint::of("order-1").as_scheme(2).or_earlier(Fingerprint::of("order-1").as_scheme(3));
  Attempt first(key);
  Attempt second(key);
  Attempt refund(key);
  pay(payments, first, {.method = charge, .fingerprint = chosen});
  pay(payments, second, {.method = charge, .fingerprint = chosen});
  pay(payments, refund, {.method = "/shop.Payments/Refund", .fingerprint = chosen});

  EXPECT_TRUE(first.status.ok());
  EXPECT_TRUE(second.is_replay());
  expect_problem(refund, GrpcProblem::key_reused, StatusCode::FAILED_PRECONDITION);
}

TEST_F(GrpcTest, KeepsTheTraceOfTheCall) {
  Shop payments = shop();
  Attempt first;
  first.with("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  pay(payments, first);

  const auto record = memory.find(grpc_record_key("grpc", "alice", charge, "k"));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->trace, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
}

TEST_F(GrpcTest, RefusesWhatIsNoFullNameOfAMethod) {
  Shop payments = shop();
  for (const char* name : {"", "/", "Charge", "shop.Payments/Charge", "/shop.Payments", "//Charge",
                           "/shop.Payments/", "/shop.Payments/Charge/", "/shop/Payments/Charge"}) {
    Attempt attempt;
    EXPECT_EQ(code_of([&] { pay(payments, attempt, {name}); }), Errc::invalid_argument) << name;
  }
}

}  // namespace
}  // namespace idempotency
