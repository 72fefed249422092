// Stands for what protoc makes of examples/18_grpc_charge.proto.
#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <cstdint>
#include <string>

namespace shop {

struct ChargeRequest : google::protobuf::MessageLite {
  std::string order() const;
  std::int64_t cents() const;
};
struct ChargeReply : google::protobuf::MessageLite {
  void set_id(const std::string& id);
};
struct Payments {
  struct Service : grpc::Service {
    virtual grpc::Status Charge(grpc::ServerContext*, const ChargeRequest*, ChargeReply*);
  };
  struct CallbackService : grpc::Service {
    virtual grpc::ServerUnaryReactor* Charge(grpc::CallbackServerContext*, const ChargeRequest*,
                                             ChargeReply*);
  };
};

}  // namespace shop
