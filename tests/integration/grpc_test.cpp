// Unary calls between gRPC's own server and client, and gRPC's own retries.

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idempotency/stores/memory.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "support/barrier.hpp"
#include "support/event.hpp"
#include "support/grpc_shop.hpp"
#include "support/tcp_relay.hpp"
#include "support/temporary_directory.hpp"
#include "support/test_certificates.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using google::protobuf::util::MessageDifferencer;
using grpc::StatusCode;
using testing_support::claimed_user;
using testing_support::Event;
using testing_support::GrpcCharge;
using testing_support::GrpcShop;
using testing_support::local_grpc_channel;
using testing_support::LocalGrpcServer;
using testing_support::run_together;
using testing_support::TcpRelay;
using testing_support::TemporaryDirectory;
using testing_support::TestCertificates;

constexpr std::size_t crowd = 50;
const std::string retries_soon =
    R"({"maxAttempts":5,"initialBackoff":"0.01s","maxBackoff":"0.01s","backoffMultiplier":1,
        "retryableStatusCodes":["UNAVAILABLE"]})";
/// Whoever retries soon under this policy was told so by the server.
const std::string retries_when_told =
    R"({"maxAttempts":5,"initialBackoff":"600s","maxBackoff":"600s","backoffMultiplier":1,
        "retryableStatusCodes":["UNAVAILABLE","UNKNOWN"]})";

void expect_problem(const GrpcCharge& call, StatusCode code, const std::string& problem) {
  EXPECT_EQ(call.status.error_code(), code) << call.status.error_message();
  EXPECT_EQ(call.told("idempotency-problem"), problem);
}

TEST(GrpcService, AnswersARepeatedCallWithTheFirstOnesReply) {
  MemoryStore store;
  GrpcShop shop(store);
  const LocalGrpcServer server(shop);
  const auto channel = local_grpc_channel(server.port());

  GrpcCharge first("\"8e03978e\"");
  GrpcCharge second("8e03978e");
  first.send(channel);
  second.send(local_grpc_channel(server.port()));

  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_TRUE(second.status.ok());
  EXPECT_FALSE(first.is_replay());
  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(first.reply.id(), "charge-1");
  EXPECT_TRUE(MessageDifferencer::Equals(first.reply, second.reply));
  EXPECT_EQ(shop.effects, 1);
}

TEST(GrpcService, RefusesWhatIsNoRepetition) {
  MemoryStore store;
  GrpcShop shop(store);
  const LocalGrpcServer server(shop);
  const auto channel = local_grpc_channel(server.port());
  GrpcCharge first("k");
  first.send(channel);

  GrpcCharge other("k");
  other.request.set_cents(999);
  expect_problem(other.send(channel), StatusCode::FAILED_PRECONDITION, "key-reused");
  EXPECT_EQ(other.told("grpc-retry-pushback-ms"), "-1");
  expect_problem(GrpcCharge("").send(channel), StatusCode::INVALID_ARGUMENT, "key-missing");
  expect_problem(GrpcCharge("\"k").send(channel), StatusCode::INVALID_ARGUMENT, "key-malformed");
  GrpcCharge twice("k");
  twice.context.AddMetadata("idempotency-key", "k");
  expect_problem(twice.send(channel), StatusCode::INVALID_ARGUMENT, "key-malformed");
  expect_problem(GrpcCharge("k", "").send(channel), StatusCode::UNAUTHENTICATED,
                 "principal-missing");
  EXPECT_EQ(shop.effects, 1);
}

TEST(GrpcService, GivesNobodyAnothersReply) {
  MemoryStore store;
  GrpcShop shop(store);
  const LocalGrpcServer server(shop);
  const auto channel = local_grpc_channel(server.port());

  GrpcCharge alice("k", "alice");
  GrpcCharge bob("k", "bob");
  GrpcCharge refund("k", "alice");
  alice.send(channel);
  bob.send(channel);
  refund.send_refund(channel);

  EXPECT_EQ(alice.reply.id(), "charge-1");
  EXPECT_EQ(bob.reply.id(), "charge-2");
  EXPECT_EQ(refund.reply.id(), "charge-3");
  EXPECT_FALSE(bob.is_replay());
  EXPECT_FALSE(refund.is_replay());
}

template <class StoreT>
void expect_one_effect_of_a_crowd_that_waits(StoreT& store) {
  GrpcShop<StoreT> shop(store, {.principal = claimed_user, .policy = {.wait = 30s}});
  const LocalGrpcServer server(shop);
  std::array<std::unique_ptr<GrpcCharge>, crowd> calls;
  std::array<std::shared_ptr<grpc::Channel>, 5> channels;
  for (auto& channel : channels)
    channel = local_grpc_channel(server.port());
  shop.handler = [&](const auto& request, auto& reply) {
    while (shop.calls < static_cast<int>(crowd))  // all of them are there while the first one runs
      std::this_thread::yield();
    return shop.charge(request, reply);
  };

  run_together(crowd, [&](std::size_t index) {
    calls.at(index) = std::make_unique<GrpcCharge>("k");
    calls.at(index)->send(channels.at(index % channels.size()));
  });

  int replays = 0;
  for (const auto& call : calls) {
    EXPECT_TRUE(call->status.ok()) << call->status.error_message();
    EXPECT_EQ(call->reply.id(), "charge-1");
    replays += call->is_replay() ? 1 : 0;
  }
  EXPECT_EQ(replays, static_cast<int>(crowd) - 1);
  EXPECT_EQ(shop.effects, 1);
}

TEST(GrpcService, RunsOnceForACrowdThatWaits) {
  MemoryStore store;
  expect_one_effect_of_a_crowd_that_waits(store);
}

TEST(GrpcService, RunsOnceForACrowdThatWaitsOverSqlite) {
  const TemporaryDirectory folder;
  SqliteStore store{{.path = folder.file("records.db")}};
  expect_one_effect_of_a_crowd_that_waits(store);
}

TEST(GrpcService, RunsOnceForACrowdThatIsRefusedMeanwhile) {
  MemoryStore store;
  GrpcShop shop(store);
  const LocalGrpcServer server(shop);
  const auto channel = local_grpc_channel(server.port());
  std::atomic<int> refused{0};
  shop.before_sending = [&](const grpc::Status& status, int) { refused += status.ok() ? 0 : 1; };
  shop.handler = [&](const auto& request, auto& reply) {
    while (refused < static_cast<int>(crowd) - 1)
      std::this_thread::yield();
    return shop.charge(request, reply);
  };

  std::atomic<int> succeeded{0};
  run_together(crowd, [&](std::size_t) {
    GrpcCharge call("k");
    if (call.send(channel).status.ok()) {
      ++succeeded;
      return;
    }
    expect_problem(call, StatusCode::UNAVAILABLE, "in-progress");
    const int pushback = std::stoi("0" + call.told("grpc-retry-pushback-ms"));
    EXPECT_GE(pushback, 1);
    EXPECT_LE(pushback, 1'000);
  });

  EXPECT_EQ(succeeded, 1);
  EXPECT_EQ(shop.effects, 1);
  EXPECT_TRUE(GrpcCharge("k").send(channel).is_replay());
}

TEST(GrpcService, DoesNotTellAClientToCallAgainBeyondItsDeadline) {
  MemoryStore store;
  GrpcShop shop(store, {.principal = claimed_user, .longest_pushback = 1h});
  const LocalGrpcServer server(shop);
  const auto channel = local_grpc_channel(server.port());
  Event running;
  Event may_end;
  shop.handler = [&](const auto& request, auto& reply) {
    running.set();
    static_cast<void>(may_end.wait());
    return shop.charge(request, reply);
  };
  GrpcCharge first("k");
  std::jthread owner([&] { first.send(channel); });
  ASSERT_TRUE(running.wait());

  GrpcCharge second("k", "alice", 10s);
  expect_problem(second.send(channel), StatusCode::UNAVAILABLE, "in-progress");
  may_end.set();
  owner.join();

  EXPECT_LE(std::stoi("0" + second.told("grpc-retry-pushback-ms")), 9'000);
  EXPECT_TRUE(first.status.ok());
}

TEST(GrpcRetries, FindTheReplyThatWasLostAfterTheCharge) {
  MemoryStore store;
  GrpcShop shop(store);
  const LocalGrpcServer server(shop);
  TcpRelay relay(server.port());
  shop.before_sending = [&](const grpc::Status&, int number) {
    if (number == 0) relay.cut();  // it is charged and recorded, and nobody hears of it
  };

  GrpcCharge call("k");
  call.send(local_grpc_channel(relay.port(), retries_soon));

  EXPECT_TRUE(call.status.ok()) << call.status.error_message();
  EXPECT_EQ(call.reply.id(), "charge-1");
  EXPECT_TRUE(call.is_replay());
  EXPECT_EQ(shop.calls, 2);
  EXPECT_EQ(shop.effects, 1);
}

TEST(GrpcRetries, WouldChargeTwiceWithoutTheKey) {
  MemoryStore store;
  GrpcShop shop(store, {.key_use = HttpKeyUse::optional, .principal = claimed_user});
  const LocalGrpcServer server(shop);
  TcpRelay relay(server.port());
  shop.before_sending = [&](const grpc::Status&, int number) {
    if (number == 0) relay.cut();
  };

  GrpcCharge call("");
  call.send(local_grpc_channel(relay.port(), retries_soon));

  EXPECT_EQ(call.reply.id(), "charge-2");
  EXPECT_EQ(shop.effects, 2);
}

TEST(GrpcRetries, RunAgainWhatFailedWithoutEffect) {
  MemoryStore store;
  GrpcShop shop(store);
  const LocalGrpcServer server(shop);
  std::atomic<int> attempts{0};
  shop.handler = [&](const auto& request, auto& reply) {
    if (++attempts <= 2) return grpc::Status(StatusCode::UNAVAILABLE, "busy");
    return shop.charge(request, reply);
  };

  GrpcCharge call("k");
  call.send(local_grpc_channel(server.port(), retries_soon));

  EXPECT_TRUE(call.status.ok()) << call.status.error_message();
  EXPECT_FALSE(call.is_replay());
  EXPECT_EQ(attempts, 3);
  EXPECT_EQ(shop.effects, 1);
}

TEST(GrpcRetries, ObeyThePushbackUntilTheFirstCallHasEnded) {
  MemoryStore store;
  GrpcShop shop(store, {.principal = claimed_user, .longest_pushback = 20ms});
  const LocalGrpcServer server(shop);
  Event running;
  Event refused;
  shop.before_sending = [&](const grpc::Status& status, int) {
    if (!status.ok()) refused.set();
  };
  shop.handler = [&](const auto& request, auto& reply) {
    running.set();
    static_cast<void>(refused.wait());
    return shop.charge(request, reply);
  };
  GrpcCharge first("k");
  std::jthread owner([&] { first.send(local_grpc_channel(server.port())); });
  ASSERT_TRUE(running.wait());

  GrpcCharge second("k");
  second.send(local_grpc_channel(server.port(), retries_when_told));
  owner.join();

  EXPECT_TRUE(second.status.ok()) << second.status.error_message();
  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(second.reply.id(), first.reply.id());
  EXPECT_GE(shop.calls, 3);
  EXPECT_EQ(shop.effects, 1);
}

TEST(GrpcRetries, EndWhereSomebodyHasToLook) {
  MemoryStore store;
  GrpcShop shop(store, {.principal = claimed_user, .type = "payment"});
  const LocalGrpcServer server(shop);
  shop.handler = [&](const auto&, auto&) -> grpc::Status {
    ++shop.effects;
    throw std::runtime_error("the bank's answer was lost");
  };
  GrpcCharge first("k");
  first.send(local_grpc_channel(server.port()));
  const int calls_before = shop.calls;

  GrpcCharge second("k");
  second.send(local_grpc_channel(server.port(), retries_when_told));

  EXPECT_EQ(first.status.error_code(), StatusCode::UNKNOWN);
  expect_problem(second, StatusCode::UNKNOWN, "outcome-unknown");
  EXPECT_EQ(second.told("idempotency-advice"), "keep-key");
  EXPECT_EQ(shop.calls, calls_before + 1);
  EXPECT_EQ(shop.effects, 1);
}

/// A first call that runs until the test lets it end, and one that waits for it.
class GrpcWaiting : public ::testing::Test {
 protected:
  GrpcWaiting() {
    shop_.handler = [&](const auto& request, auto& reply) {
      running_.set();
      static_cast<void>(may_end_.wait());
      return shop_.charge(request, reply);
    };
    shop_.before_sending = [&](const grpc::Status& status, int number) {
      (number == 0 ? first_status_ : second_status_) = status.error_code();
      (number == 0 ? first_left_ : second_left_).set();
    };
  }
  ~GrpcWaiting() override { may_end_.set(); }

  void start_first() {
    owner_ = std::jthread([this] { first_.send(channel_); });
    ASSERT_TRUE(running_.wait());
  }
  void end_first() {
    may_end_.set();
    owner_.join();
  }

  MemoryStore store_;
  GrpcShop<MemoryStore> shop_{store_, {.principal = claimed_user, .policy = {.wait = 10min}}};
  Event running_;
  Event may_end_;
  Event first_left_;
  Event second_left_;
  StatusCode first_status_ = StatusCode::OK;
  StatusCode second_status_ = StatusCode::OK;
  LocalGrpcServer server_{shop_};
  std::shared_ptr<grpc::Channel> channel_ = local_grpc_channel(server_.port());
  GrpcCharge first_{"k"};
  std::jthread owner_;
};

TEST_F(GrpcWaiting, EndsBeforeTheCallsOwnDeadline) {
  start_first();

  GrpcCharge second("k", "alice", 1'500ms);
  second.send(local_grpc_channel(server_.port()));
  ASSERT_TRUE(second_left_.wait());  // while the first one is running
  end_first();

  EXPECT_TRUE(second_status_ == StatusCode::UNAVAILABLE || second_status_ == StatusCode::CANCELLED);
  EXPECT_FALSE(second.status.ok());
  EXPECT_TRUE(first_.status.ok());
  EXPECT_TRUE(GrpcCharge("k").send(channel_).is_replay());
  EXPECT_EQ(shop_.effects, 1);
}

TEST_F(GrpcWaiting, EndsWhenTheWaitingClientHasGone) {
  start_first();

  GrpcCharge second("k");
  std::jthread waiter([&] { second.send(local_grpc_channel(server_.port())); });
  while (shop_.calls < 2)
    std::this_thread::yield();
  second.context.TryCancel();
  ASSERT_TRUE(second_left_.wait());  // while the first one is running
  waiter.join();
  end_first();

  EXPECT_EQ(second_status_, StatusCode::CANCELLED);
  EXPECT_TRUE(first_.status.ok());
  EXPECT_EQ(shop_.effects, 1);
}

TEST_F(GrpcWaiting, GoesOnWhenTheFirstClientHasGone) {
  start_first();

  first_.context.TryCancel();
  GrpcCharge second("k");
  std::jthread waiter([&] { second.send(local_grpc_channel(server_.port())); });
  while (shop_.calls < 2)
    std::this_thread::yield();
  end_first();
  waiter.join();

  ASSERT_TRUE(first_left_.wait());
  EXPECT_EQ(first_.status.error_code(), StatusCode::CANCELLED);
  EXPECT_EQ(first_status_, StatusCode::OK);
  EXPECT_TRUE(second.status.ok()) << second.status.error_message();
  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(shop_.effects, 1);
}

TEST(GrpcService, KeepsWhatWasDoneWhenTheReplyIsTooLarge) {  // KF-09
  MemoryStore store;
  GrpcShop shop(store, {.principal = claimed_user, .policy = {.max_result_bytes = 1'000}});
  const LocalGrpcServer server(shop);
  const auto channel = local_grpc_channel(server.port());
  shop.handler = [&](const auto&, auto& reply) {
    ++shop.effects;
    reply.set_id(std::string(100'000, 'x'));
    return grpc::Status::OK;
  };

  GrpcCharge first("k");
  EXPECT_EQ(first.send(channel).reply.id().size(), 100'000U);
  GrpcCharge second("k");
  expect_problem(second.send(channel), StatusCode::ALREADY_EXISTS, "result-not-kept");
  EXPECT_EQ(second.told("idempotency-advice"), "done");
  EXPECT_EQ(shop.effects, 1);
}

TEST(GrpcService, ReplaysAfterARestartOverSqlite) {
  const TemporaryDirectory folder;
  for (int life = 0; life < 2; ++life) {
    SqliteStore store{{.path = folder.file("records.db")}};
    GrpcShop shop(store);
    const LocalGrpcServer server(shop);
    GrpcCharge call("k");
    call.send(local_grpc_channel(server.port()));

    EXPECT_EQ(call.reply.id(), "charge-1");
    EXPECT_EQ(call.is_replay(), life == 1);
    EXPECT_EQ(shop.effects, 1 - life);
  }
}

/// Takes the token for the peer's name: an authentication that is gRPC's to call.
class TokenIsTheName final : public grpc::AuthMetadataProcessor {
 public:
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto token = metadata.find("token");
    if (token == metadata.end()) return grpc::Status::OK;
    context->AddProperty("name", token->second);
    context->SetPeerIdentityPropertyName("name");
    return grpc::Status::OK;
  }
};

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A server that wants to see a certificate, or a token, or neither.
class GrpcPeers : public ::testing::Test {
 protected:
  GrpcPeers() {
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = content_of(certificates_.authority());
    options.pem_key_cert_pairs = {
        {content_of(certificates_.server_key()), content_of(certificates_.server())}};
    const auto credentials = grpc::SslServerCredentials(options);
    credentials->SetAuthMetadataProcessor(std::make_shared<TokenIsTheName>());
    server_.emplace(shop_, credentials);
  }
  [[nodiscard]] std::shared_ptr<grpc::Channel> channel() const { return channel({}); }
  [[nodiscard]] std::shared_ptr<grpc::Channel> channel_with_certificate() const {
    grpc::SslCredentialsOptions options;
    options.pem_private_key = content_of(certificates_.client_key());
    options.pem_cert_chain = content_of(certificates_.client());
    return channel(options);
  }

  TestCertificates certificates_;
  MemoryStore store_;
  GrpcShop<MemoryStore> shop_{store_, {}};
  std::optional<LocalGrpcServer> server_;

 private:
  [[nodiscard]] std::shared_ptr<grpc::Channel> channel(grpc::SslCredentialsOptions options) const {
    options.pem_root_certs = content_of(certificates_.authority());
    return local_grpc_channel(server_->port(), {}, grpc::SslCredentials(options));
  }
};

TEST_F(GrpcPeers, AreTheirCertificatesNames) {
  GrpcCharge first("k", "alice");
  GrpcCharge second("k", "whatever it says");

  EXPECT_TRUE(first.send(channel_with_certificate()).status.ok()) << first.status.error_message();
  EXPECT_TRUE(second.send(channel_with_certificate()).is_replay());
}

TEST_F(GrpcPeers, AreNobodyWithoutACertificateOrToken) {
  GrpcCharge call("k", "alice");
  expect_problem(call.send(channel()), StatusCode::UNAUTHENTICATED, "principal-missing");
  EXPECT_EQ(shop_.effects, 0);
}

TEST_F(GrpcPeers, AreKeptApart) {
  const auto charge_as = [&](GrpcCharge& call, const std::string& name) {
    call.context.AddMetadata("token", name);
    call.send(channel());
    return call.reply.id();
  };
  GrpcCharge alice("k", "");
  GrpcCharge bob("k", "");
  GrpcCharge alice_again("k", "");
  GrpcCharge with_certificate("k", "");

  EXPECT_EQ(charge_as(alice, "alice"), "charge-1") << alice.status.error_message();
  EXPECT_EQ(charge_as(bob, "bob"), "charge-2");
  EXPECT_EQ(charge_as(alice_again, "alice"), "charge-1");
  EXPECT_EQ(with_certificate.send(channel_with_certificate()).reply.id(), "charge-3");
}

/// The callback API: gRPC's threads must not block, so each call is run on another one.
class CallbackShop final : public shop::Payments::CallbackService {
 public:
  grpc::ServerUnaryReactor* Charge(grpc::CallbackServerContext* context,
                                   const shop::ChargeRequest* request,
                                   shop::ChargeReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const std::scoped_lock lock(mutex_);
    threads_.emplace_back([=, this] {
      reactor->Finish(idempotent_.run(*context, {"/shop.Payments/Charge"}, *request, *reply, [&] {
        reply->set_id("charge-" + std::to_string(++effects));
        return grpc::Status::OK;
      }));
    });
    return reactor;
  }
  std::atomic<int> effects{0};

 private:
  MemoryStore store_;
  IdempotencyGuard<MemoryStore> guard_{store_};
  GrpcIdempotency<IdempotencyGuard<MemoryStore>> idempotent_{
      guard_, {.principal = claimed_user, .policy = {.wait = 30s}}};
  std::mutex mutex_;
  std::vector<std::jthread> threads_;
};

TEST(GrpcService, WorksBehindTheCallbackApi) {
  CallbackShop shop;
  const LocalGrpcServer server(shop);
  const auto channel = local_grpc_channel(server.port());
  std::atomic<int> replays{0};

  run_together(20, [&](std::size_t) {
    GrpcCharge call("k");
    EXPECT_EQ(call.send(channel).reply.id(), "charge-1") << call.status.error_message();
    replays += call.is_replay() ? 1 : 0;
  });

  EXPECT_EQ(replays, 19);
  EXPECT_EQ(shop.effects, 1);
}

}  // namespace
}  // namespace idempotency
