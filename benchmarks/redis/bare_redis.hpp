#pragma once

#include <hiredis/hiredis.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/measure.hpp"

namespace benchmark_redis {

/// A connection of hiredis' own.
class BareConnection {
 public:
  explicit BareConnection(std::uint16_t port) : context_(redisConnect("127.0.0.1", port)) {
    check(context_ && context_->err == 0, "a bare connection");
    // As the store has one: a service that waits for ever for an answer is none.
    check(redisSetTimeout(context_.get(), timeval{5, 0}) == REDIS_OK, "a time-out");
  }

 protected:
  struct Free {
    void operator()(redisContext* context) const noexcept { redisFree(context); }
    void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
  };
  using Reply = std::unique_ptr<redisReply, Free>;

  static void check(bool right, std::string_view what) { benchmark_core::check(right, what); }

  template <std::size_t size>
  Reply send(const std::string_view (&words)[size]) {
    append(words);
    return next_reply();
  }
  /// For a pipeline: it is sent when the first reply is asked for.
  template <std::size_t size>
  void append(const std::string_view (&words)[size]) {
    std::array<const char*, size> texts;
    std::array<std::size_t, size> sizes;
    for (std::size_t word = 0; word < size; ++word) {
      texts[word] = words[word].data();
      sizes[word] = words[word].size();
    }
    check(redisAppendCommandArgv(context_.get(), static_cast<int>(size), texts.data(),
                                 sizes.data()) == REDIS_OK,
          "a bare command");
  }
  Reply next_reply() {
    void* reply = nullptr;
    check(redisGetReply(context_.get(), &reply) == REDIS_OK, "a bare reply");
    return Reply(static_cast<redisReply*>(reply));
  }
  /// By which EVALSHA knows the script from now on.
  std::string load(std::string_view script) {
    const Reply reply = send({"SCRIPT", "LOAD", script});
    check(reply && reply->type == REDIS_REPLY_STRING, "the bare script");
    return {reply->str, reply->len};
  }

 private:
  std::unique_ptr<redisContext, Free> context_;
};

/// What a service would write by hand: hiredis, one connection, the commands and a script that compares the owner.
class BareRedis : private BareConnection {
 public:
  explicit BareRedis(std::uint16_t port) : BareConnection(port), sha1_(load(script)) {}

  void first_run(std::string_view key) {
    owner_[0] = static_cast<char>(
        owner_[0] + 1);  // a token that differs from call to call is not what is measured
    const std::string_view first(owner_.data(), 24);
    const Reply begun = send({"SET", key, first, "NX", "GET", "PX", "31536000000000"});
    check(begun && begun->type == REDIS_REPLY_NIL, "a bare first run met a record");
    const Reply ended = send({"EVALSHA",
                              sha1_,
                              "1",
                              key,
                              first.substr(0, 16),
                              {owner_.data(), owner_.size()},
                              "3600000"});
    check(ended && ended->type == REDIS_REPLY_INTEGER && ended->integer == 1,
          "a bare completion was lost");
  }

  [[nodiscard]] std::string duplicate(std::string_view key) {
    const std::string_view first(owner_.data(), 24);
    return text(send({"SET", key, first, "NX", "GET", "PX", "31536000000000"}));
  }

  /// Many of them in one pipeline; gives how many bytes came back.
  [[nodiscard]] std::size_t duplicates(const std::vector<std::string_view>& keys) {
    const std::string_view first(owner_.data(), 24);
    for (const std::string_view key : keys)
      append({"SET", key, first, "NX", "GET", "PX", "31536000000000"});
    std::size_t bytes = 0;
    for (std::size_t at = 0; at < keys.size(); ++at)
      bytes += text(next_reply()).size();
    return bytes;
  }

  [[nodiscard]] std::string get(std::string_view key) { return text(send({"GET", key})); }

 private:
  static constexpr const char* script =
      "local v = redis.call('GET', KEYS[1])\n"
      "if not v or v:sub(1, 16) ~= ARGV[1] then return 0 end\n"
      "redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])\n"
      "return 1";

  static std::string text(const Reply& reply) {
    check(reply && reply->type == REDIS_REPLY_STRING, "a bare duplicate found nothing");
    return {reply->str, reply->len};
  }

  std::string sha1_;
  std::array<char, 44> owner_{};  ///< as long as the store's record with a result of 16 bytes
};

}  // namespace benchmark_redis
