#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <set>
#include <vector>

#include "idempotency/lease.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/barrier.hpp"

namespace idempotency {
namespace {

using TokenSet = std::set<OwnerToken::Bytes>;

constexpr std::size_t tokens_each = 1'000;

/// Writes tokens to the descriptor; false when they could not all be written.
bool write_tokens(int descriptor) {
  for (std::size_t i = 0; i < tokens_each; ++i) {
    const OwnerToken::Bytes bytes = OwnerToken::generate().bytes();
    if (::write(descriptor, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      return false;
    }
  }
  return true;
}

/// All tokens that a child makes right after it was forked.
std::vector<OwnerToken::Bytes> tokens_of_a_child() {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    ::_exit(write_tokens(ends[1]) ? 0 : 1);
  }
  ::close(ends[1]);
  std::vector<OwnerToken::Bytes> tokens;
  OwnerToken::Bytes bytes{};
  std::size_t filled = 0;
  while (true) {
    const ssize_t count = ::read(ends[0], bytes.data() + filled, bytes.size() - filled);
    if (count <= 0) break;
    filled += static_cast<std::size_t>(count);
    if (filled == bytes.size()) {
      tokens.push_back(bytes);
      filled = 0;
    }
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return tokens;
}

// CP-03
TEST(OwnerToken, IsNeverTheSameInAHundredForkedChildrenAndTheirParent) {
  TokenSet all;
  std::size_t made = 0;
  all.insert(
      OwnerToken::generate().bytes());  // fills this thread's supply, which the children inherit
  ++made;

  for (int child = 0; child < 100; ++child) {
    const std::vector<OwnerToken::Bytes> tokens = tokens_of_a_child();
    EXPECT_EQ(tokens.size(), tokens_each) << "child " << child;
    all.insert(tokens.begin(), tokens.end());
    made += tokens.size();
    all.insert(OwnerToken::generate().bytes());
    ++made;
  }

  EXPECT_EQ(all.size(), made);
  EXPECT_EQ(made, 100U * tokens_each + 101U);
}

TEST(OwnerToken, IsNeverTheSameInSeveralThreads) {
  TokenSet all;
  std::mutex mutex;
  constexpr std::size_t threads = 8;

  testing_support::run_together(threads, [&](std::size_t) {
    std::vector<OwnerToken::Bytes> mine;
    for (std::size_t i = 0; i < tokens_each; ++i)
      mine.push_back(OwnerToken::generate().bytes());
    const std::scoped_lock lock(mutex);
    all.insert(mine.begin(), mine.end());
  });

  EXPECT_EQ(all.size(), threads * tokens_each);
}

TEST(OwnerToken, UsesEveryOneOfItsBits) {
  OwnerToken::Bytes ever_set{};
  OwnerToken::Bytes always_set{};
  always_set.fill(0xff);

  for (std::size_t i = 0; i < tokens_each; ++i) {
    const OwnerToken::Bytes bytes = OwnerToken::generate().bytes();
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      ever_set.at(at) = static_cast<std::uint8_t>(ever_set.at(at) | bytes.at(at));
      always_set.at(at) = static_cast<std::uint8_t>(always_set.at(at) & bytes.at(at));
    }
  }

  OwnerToken::Bytes ones{};
  ones.fill(0xff);
  EXPECT_EQ(ever_set, ones);
  EXPECT_EQ(always_set, OwnerToken::Bytes{});
}

TEST(OwnerToken, IsComparedByAllOfItsBytes) {
  OwnerToken::Bytes bytes{};
  bytes.fill(7);
  const OwnerToken original(bytes);

  for (std::size_t at = 0; at < bytes.size(); ++at) {
    OwnerToken::Bytes other = bytes;
    other.at(at) = 8;
    EXPECT_NE(OwnerToken(other), original) << "byte " << at;
  }
  EXPECT_EQ(OwnerToken(bytes), original);
}

}  // namespace
}  // namespace idempotency
