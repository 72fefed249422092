#include "idempotency/stores/redis_script.hpp"

#include <gtest/gtest.h>

#include <string>

#include "idempotency/stores/redis.hpp"
#include "support/error_of.hpp"

namespace idempotency {
namespace {

using testing_support::code_of;

TEST(RedisScript, IsNamedByItsSha1) {
  EXPECT_EQ(RedisScript("return 1").sha1(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
  EXPECT_EQ(RedisScript("return 1").body(), "return 1");
}

TEST(RedisReply, IsReadInTheFormThatItHas) {
  const RedisReply list(
      RedisReply::List{RedisReply(7), RedisReply(std::string("a\0b", 3)), RedisReply()});

  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list.at(0).integer(), 7);
  EXPECT_EQ(list.at(1).bytes(), std::string("a\0b", 3));
  EXPECT_TRUE(list.at(2).is_nil());
  EXPECT_FALSE(list.at(0).is_nil());
}

TEST(RedisReply, RefusesToBeReadInAnotherForm) {
  const RedisReply number(7);
  const RedisReply bytes(std::string("7"));
  const RedisReply list(RedisReply::List{number});

  EXPECT_EQ(code_of([&] { static_cast<void>(bytes.integer()); }), Errc::store_corrupt);
  EXPECT_EQ(code_of([&] { static_cast<void>(number.bytes()); }), Errc::store_corrupt);
  EXPECT_EQ(code_of([&] { static_cast<void>(number.size()); }), Errc::store_corrupt);
  EXPECT_EQ(code_of([&] { static_cast<void>(RedisReply().integer()); }), Errc::store_corrupt);
  EXPECT_EQ(code_of([&] { static_cast<void>(list.at(1)); }), Errc::store_corrupt);
}

TEST(RedisName, StandsBesideTheRecordOfItsKey) {
  const RedisStore store({.unix_socket = "/nowhere/redis.sock", .prefix = "shop"});

  EXPECT_EQ(store.name_for({"stock", "sku-7"}, "lock"), "shop:{stock:sku-7}:lock");
  for (const std::string& part : {std::string(), std::string("a}"), std::string("a b"),
                                  std::string("a:b"), std::string(65, 'x')}) {
    EXPECT_EQ(code_of([&] {
                static_cast<void>(store.name_for({"stock", "sku-7"}, part));
              }),
              Errc::invalid_argument);
  }
}

}  // namespace
}  // namespace idempotency
