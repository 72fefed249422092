#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/test/server_context_test_spouse.h>
#include <idempotency/edges/grpc.hpp>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>

int main() {
  idempotency::MemoryStore store;
  idempotency::IdempotencyGuard guard{store};
  idempotency::GrpcIdempotency calls{
      guard, {.principal = [](const grpc::ServerContextBase&) { return "alice"; }}};

  int runs = 0;
  const auto greet = [&](google::protobuf::StringValue& reply) {
    grpc::ServerContext context;
    grpc::testing::ServerContextTestSpouse metadata(&context);
    metadata.AddClientMetadata("idempotency-key", "1");
    const google::protobuf::StringValue request;
    return calls.run(context, {"/shop.Greeter/Greet"}, request, reply, [&] {
      reply.set_value("hello " + std::to_string(++runs));
      return grpc::Status::OK;
    });
  };
  google::protobuf::StringValue first;
  google::protobuf::StringValue second;
  const bool good = greet(first).ok() && greet(second).ok() && second.value() == "hello 1" &&
                    grpc::Version() != "";
  return good ? 0 : 1;
}
