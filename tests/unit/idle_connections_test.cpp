#include "core/idle_connections.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace idempotency {
namespace {

using Idle = detail::IdleConnections<int>;

void push_from_another_thread(Idle& idle, int connection) {
  std::thread([&] { idle.push(std::make_unique<int>(connection)); }).join();
}

TEST(IdleConnections, GiveAThreadTheOneThatItUsedLast) {
  Idle idle;
  idle.push(std::make_unique<int>(1));
  idle.push(std::make_unique<int>(2));
  push_from_another_thread(idle, 3);

  const auto own = idle.take();
  const auto own_before = idle.take();

  ASSERT_TRUE(own && own_before);
  EXPECT_EQ(*own, 2);
  EXPECT_EQ(*own_before, 1);
  EXPECT_EQ(idle.size(), 1U);
}

TEST(IdleConnections, GiveTheOneUsedLastByAnyToAThreadThatUsedNone) {
  Idle idle;
  push_from_another_thread(idle, 1);
  push_from_another_thread(idle, 2);

  const auto first = idle.take();
  const auto second = idle.take();
  const auto none = idle.take();

  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, 2);
  EXPECT_EQ(*second, 1);
  EXPECT_FALSE(none);
}

TEST(IdleConnections, PreferWhatIsWantedToWhatIsOnesOwn) {
  Idle idle;
  push_from_another_thread(idle, 2);
  idle.push(std::make_unique<int>(1));
  const auto is_even = [](int connection) { return connection % 2 == 0; };

  const auto even = idle.take(is_even);
  const auto no_other = idle.take(is_even);

  ASSERT_TRUE(even);
  EXPECT_EQ(*even, 2);
  EXPECT_FALSE(no_other);
  EXPECT_EQ(idle.size(), 1U);
}

}  // namespace
}  // namespace idempotency
