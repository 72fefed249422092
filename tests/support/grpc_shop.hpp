#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "18_grpc_charge.grpc.pb.h"
#include "idempotency/edges/grpc.hpp"
#include "idempotency/guard.hpp"
#include "support/local_grpc_server.hpp"

namespace idempotency::testing_support {

/// What a call's metadata says under `name`; empty without it.
inline std::string metadata_of(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
                               const std::string& name) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) return {};
  return {found->second.data(), found->second.size()};
}

/// Believes the metadata `user`, as no service should.
inline std::string claimed_user(const grpc::ServerContextBase& context) {
  return metadata_of(context.client_metadata(), "user");
}

/// A shop's payment service over a store. What it does is set before the first call.
template <class StoreT>
class GrpcShop final : public shop::Payments::Service {
 public:
  using Handler = std::function<grpc::Status(const shop::ChargeRequest&, shop::ChargeReply&)>;

  explicit GrpcShop(StoreT& store, GrpcOptions options = {.principal = claimed_user})
      : guard_(store), idempotent_(guard_, std::move(options)) {}

  grpc::Status Charge(grpc::ServerContext* context, const shop::ChargeRequest* request,
                      shop::ChargeReply* reply) override {
    return serve("/shop.Payments/Charge", *context, *request, *reply);
  }
  grpc::Status Refund(grpc::ServerContext* context, const shop::ChargeRequest* request,
                      shop::ChargeReply* reply) override {
    return serve("/shop.Payments/Refund", *context, *request, *reply);
  }

  /// Counts, and gives a receipt with the number.
  grpc::Status charge(const shop::ChargeRequest& request, shop::ChargeReply& reply) {
    reply.set_id("charge-" + std::to_string(++effects));
    reply.set_cents(request.cents());
    for (const char* label : {"c", "a", "b"})
      (*reply.mutable_labels())[label] = "1";
    return grpc::Status::OK;
  }

  Handler handler = [this](const auto& request, auto& reply) { return charge(request, reply); };
  /// Called with each answer before it is sent, and the number of calls that arrived before.
  std::function<void(const grpc::Status&, int)> before_sending = [](const grpc::Status&, int) {};
  std::atomic<int> effects{0};
  std::atomic<int> calls{0};

 private:
  grpc::Status serve(std::string_view method, grpc::ServerContext& context,
                     const shop::ChargeRequest& request, shop::ChargeReply& reply) {
    const int number = calls++;
    const grpc::Status status =
        idempotent_.run(context, {method}, request, reply, [&] { return handler(request, reply); });
    before_sending(status, number);
    return status;
  }

  IdempotencyGuard<StoreT> guard_;
  GrpcIdempotency<IdempotencyGuard<StoreT>> idempotent_;
};

/// One call of a client.
struct GrpcCharge {
  explicit GrpcCharge(const std::string& key, const std::string& user = "alice",
                      std::chrono::milliseconds limit = std::chrono::seconds{30}) {
    if (!key.empty()) context.AddMetadata("idempotency-key", key);
    if (!user.empty()) context.AddMetadata("user", user);
    context.set_deadline(std::chrono::system_clock::now() + limit);
    request.set_order("order-7");
    request.set_cents(100);
    for (const char* label : {"b", "c", "a"})
      (*request.mutable_labels())[label] = "1";
  }
  GrpcCharge& send(const std::shared_ptr<grpc::Channel>& channel) {
    status = shop::Payments::NewStub(channel)->Charge(&context, request, &reply);
    return *this;
  }
  GrpcCharge& send_refund(const std::shared_ptr<grpc::Channel>& channel) {
    status = shop::Payments::NewStub(channel)->Refund(&context, request, &reply);
    return *this;
  }
  [[nodiscard]] std::string told(const std::string& name) const {
    return metadata_of(context.GetServerTrailingMetadata(), name);
  }
  [[nodiscard]] bool is_replay() const { return told("idempotent-replayed") == "true"; }

  grpc::ClientContext context;
  shop::ChargeRequest request;
  shop::ChargeReply reply;
  grpc::Status status;
};

}  // namespace idempotency::testing_support
