#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <variant>

#include "idempotency/patterns/lock_carrier.hpp"
#include "support/child_process.hpp"

namespace idempotency::testing_support {

/// LK-14: clients whose clocks are wrong judge leases by the server's all the same. A backend has
///
///   using Store = ...; using Locks = ...;  // a store, and the carrier that is made from one
///   static std::string address();          // of the store
///   static void clear();                   // there are no locks then
template <class Backend>
class LockClock : public ::testing::Test {
 protected:
  static constexpr const char* library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
  static constexpr const char* address_variable = "IDEMPOTENCY_TEST_ADDRESS";
  static constexpr const char* time_variable = "IDEMPOTENCY_TEST_TIME";
  static constexpr std::chrono::minutes lease{1};

  struct Client {
    explicit Client(const std::string& address) : store(address) {}
    [[nodiscard]] bool acquires(const Key& key, std::chrono::milliseconds span = lease) {
      return std::holds_alternative<LockAcquired>(locks.acquire(key, OwnerToken::generate(), span));
    }
    typename Backend::Store store;
    typename Backend::Locks locks{store};
  };

  static std::int64_t seconds_now() {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  /// A lease that runs for a minute, and one that has just ended.
  void prepare() {
    Backend::clear();
    Client client(Backend::address());
    ASSERT_TRUE(client.acquires(held_));
    ASSERT_TRUE(client.acquires(ended_, std::chrono::milliseconds{1}));
    std::this_thread::sleep_for(std::chrono::milliseconds{5});  // by the server's clock
  }

  const Key held_{"stock", "held"};
  const Key ended_{"stock", "ended"};
  const Key skewed_{"stock", "skewed"};
};
TYPED_TEST_SUITE_P(LockClock);

// Runs here with a right clock, and once more in a process of its own with a wrong one.
TYPED_TEST_P(LockClock, IsTheServersForAClient) {
  const char* address = std::getenv(this->address_variable);
  if (address == nullptr) this->prepare();
  typename TestFixture::Client client(address == nullptr ? TypeParam::address() : address);

  if (const char* told = std::getenv(this->time_variable)) {
    EXPECT_GT(std::abs(this->seconds_now() - std::stoll(told)), 300) << "the clock is right";
  }
  EXPECT_FALSE(client.acquires(this->held_));
  EXPECT_LE(client.locks.look(this->held_)->remaining, this->lease);
  EXPECT_TRUE(client.acquires(this->ended_));
  EXPECT_TRUE(client.acquires(this->skewed_));
}

TYPED_TEST_P(LockClock, IsTheServersWhateverTheClientsSay) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "A sanitizer's library and that of another clock do not go together";
#endif
  if (!std::filesystem::exists(this->library)) {
    GTEST_SKIP() << "LK-14 IS NOT TRIED: libfaketime is not there";
  }
  const std::string suite =
      ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
  for (const std::string skew : {"+10m", "-10m"}) {
    this->prepare();
    ChildProcess client = ChildProcess::start(
        {"/proc/self/exe", "--gtest_filter=" + suite + ".IsTheServersForAClient"},
        {std::string("LD_PRELOAD=") + this->library, "FAKETIME=" + skew,
         "FAKETIME_DONT_FAKE_MONOTONIC=1",
         std::string(this->address_variable) + '=' + TypeParam::address(),
         std::string(this->time_variable) + '=' + std::to_string(this->seconds_now())});

    std::string said;
    for (const std::string& line : client.remaining_lines())
      said += line + '\n';
    EXPECT_EQ(client.wait(), (ProcessEnd{0, 0})) << skew << '\n' << said;

    typename TestFixture::Client right(TypeParam::address());
    EXPECT_FALSE(right.acquires(this->skewed_)) << skew;
    EXPECT_LE(right.locks.look(this->skewed_)->remaining, this->lease) << skew;
    EXPECT_GT(right.locks.look(this->skewed_)->remaining, this->lease / 2) << skew;
  }
}

REGISTER_TYPED_TEST_SUITE_P(LockClock, IsTheServersForAClient, IsTheServersWhateverTheClientsSay);

}  // namespace idempotency::testing_support
