#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace idempotency::testing_support {

/// A gRPC server with one service on a free port of the loopback, stopped when it is destroyed.
class LocalGrpcServer {
 public:
  /// Lifetime: borrows the service.
  explicit LocalGrpcServer(grpc::Service& service,
                           const std::shared_ptr<grpc::ServerCredentials>& credentials =
                               grpc::InsecureServerCredentials()) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port);
    builder.RegisterService(&service);
    server_ = builder.BuildAndStart();
    if (!server_) throw std::runtime_error("no gRPC server could be started");
    port_ = static_cast<std::uint16_t>(port);
  }
  LocalGrpcServer(const LocalGrpcServer&) = delete;
  LocalGrpcServer& operator=(const LocalGrpcServer&) = delete;
  /// Returns when no call is running any more.
  ~LocalGrpcServer() {
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds{10});
    server_->Wait();
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::uint16_t port_ = 0;
};

/// A channel of its own to a server of the loopback. `retry_policy`: the JSON object of a service config; empty: none.
inline std::shared_ptr<grpc::Channel> local_grpc_channel(
    std::uint16_t port, const std::string& retry_policy = {},
    const std::shared_ptr<grpc::ChannelCredentials>& credentials =
        grpc::InsecureChannelCredentials()) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  if (!retry_policy.empty()) {
    arguments.SetServiceConfigJSON(R"({"methodConfig":[{"name":[{}],"retryPolicy":)" +
                                   retry_policy + "}]}");
  }
  return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port), credentials, arguments);
}

}  // namespace idempotency::testing_support
