#include <cstdio>
#include <string>

#include <google/protobuf/wrappers.pb.h>
#include <idempotency/codecs/json.hpp>
#include <idempotency/codecs/protobuf.hpp>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>

namespace idem = idempotency;

struct Receipt {
  std::string id;
  int cents = 0;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Receipt, id, cents)
};

template <>
struct idempotency::Codec<Receipt> : idempotency::JsonCodec<Receipt> {};
template <>
struct idempotency::Codec<google::protobuf::StringValue>
    : idempotency::ProtobufCodec<google::protobuf::StringValue> {};

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};

  const auto issue = [] { return Receipt{"r-1", 250}; };
  (void)guard.run({.key = {"order", "1"}}, issue);
  const auto receipt = guard.run({.key = {"order", "1"}}, issue);

  const auto greet = [] {
    google::protobuf::StringValue value;
    value.set_value("hello");
    return value;
  };
  (void)guard.run({.key = {"order", "2"}}, greet);
  const auto greeting = guard.run({.key = {"order", "2"}}, greet);

  const bool good = receipt.status() == idem::RunStatus::replayed && receipt.value().cents == 250 &&
                    greeting.status() == idem::RunStatus::replayed &&
                    greeting.value().value() == "hello";
  std::puts(good ? "both codecs replay" : "WRONG");
  return good ? 0 : 1;
}
