#pragma once

#include <chrono>
#include <cstdint>
#include <idempotency/codecs/json.hpp>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/breaker.hpp>
#include <idempotency/stores/caching.hpp>
#include <idempotency/stores/memory.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

namespace idem = idempotency;
using namespace std::chrono_literals;

struct Order {
  std::string id;
  std::int64_t cents = 0;
};

struct Receipt {
  std::string charge_id;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Receipt, charge_id)
};
template <>
struct idempotency::Codec<Receipt> : idempotency::JsonCodec<Receipt> {};

struct Bank {
  Receipt charge(const Order& order, const std::string& reference);
  std::optional<std::string> find(const std::string& reference);
};

void validate(const Order& order);
void answer(int status, const Receipt& receipt);
void ask_again(int status, std::chrono::milliseconds after);
void refuse(int status);

extern idem::SqliteStore store;
extern idem::IdempotencyGuard<idem::SqliteStore> guard;
extern Bank bank;
extern const Order order;
extern const std::string id;
extern const std::string from;
extern const std::string to;
extern const int cents;
