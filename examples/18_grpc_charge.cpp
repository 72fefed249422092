// A gRPC service whose clients may call again: same idempotency-key, same reply, one effect.

#include <atomic>
#include <iostream>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <idempotency/edges/grpc.hpp>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>

#include "18_grpc_charge.grpc.pb.h"
#include "expect.hpp"

namespace idem = idempotency;

// Who asks is what the service has authenticated; here the token is the account. With client certificates leave it out.
std::string account_of(const grpc::ServerContextBase& context) {
  const auto token = context.client_metadata().find("authorization");
  if (token == context.client_metadata().end()) return {};
  return {token->second.data(), token->second.size()};
}

class Payments final : public shop::Payments::Service {
 public:
  grpc::Status Charge(grpc::ServerContext* context, const shop::ChargeRequest* request,
                      shop::ChargeReply* reply) override {
    return idempotent_.run(
        *context, {"/shop.Payments/Charge"}, *request, *reply, [&](idem::Execution* execution) {
          execution->point_of_no_return();  // from here on a failure is "unknown"
          reply->set_id("charge-" + std::to_string(++charges_));
          reply->set_cents(request->cents());
          return grpc::Status::OK;
        });
  }
  int charges() const { return charges_; }

 private:
  idem::MemoryStore store_;  // in a service: SqliteStore, RedisStore or MySqlStore
  idem::IdempotencyGuard<idem::MemoryStore> guard_{store_};
  idem::GrpcIdempotency<idem::IdempotencyGuard<idem::MemoryStore>> idempotent_{
      guard_, {.principal = account_of, .type = "payment"}};  // `hold`, 30 days
  std::atomic<int> charges_{0};
};

int main() {
  Payments payments;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&payments);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  expect(server != nullptr, "it serves");

  const auto stub = shop::Payments::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  struct Answer {
    grpc::Status status;
    std::string id;
    bool replayed = false;
  };
  const auto charge = [&](const std::string& key, std::int64_t cents,
                          const std::string& account = "alice") {
    grpc::ClientContext context;
    context.AddMetadata("authorization", account);
    if (!key.empty()) context.AddMetadata("idempotency-key", key);
    shop::ChargeRequest request;
    request.set_order("order-7");
    request.set_cents(cents);
    shop::ChargeReply reply;
    const grpc::Status status = stub->Charge(&context, request, &reply);
    return Answer{status, reply.id(),
                  context.GetServerTrailingMetadata().count("idempotent-replayed") == 1};
  };
  const Answer first = charge("8e03978e", 100);
  const Answer again = charge("8e03978e", 100);
  const Answer other = charge("8e03978e", 999);
  const Answer keyless = charge("", 100);
  const Answer bobs = charge("8e03978e", 100, "bob");
  server->Shutdown();

  std::cout << other.status.error_message() << '\n';
  expect(first.status.ok() && first.id == "charge-1" && !first.replayed, "it ran");
  expect(again.status.ok() && again.id == "charge-1" && again.replayed, "the same reply");
  expect(other.status.error_code() == grpc::FAILED_PRECONDITION,
         "another charge under the same key is refused");
  expect(keyless.status.error_code() == grpc::INVALID_ARGUMENT, "so is one without a key");
  expect(bobs.id == "charge-2", "another account's key is another");
  expect(payments.charges() == 2, "two charges");
}
