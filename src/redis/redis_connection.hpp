#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/stores/redis.hpp"
#include "redis/redis_reply.hpp"
#include "redis/redis_scripts.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

using SteadyTime = std::chrono::steady_clock::time_point;

class Tls;

/// A connection broke or timed out, thrown inside the room only.
struct Broken {
  enum class Progress : std::uint8_t {
    nothing_executed,  ///< the server cannot have seen a whole command
    sent,
  };
  enum class Cause : std::uint8_t { closed, timed_out };
  Progress progress;
  Cause cause;
  std::string words;
};

/// Commands in the form in which they are sent, one after the other.
class Commands {
 public:
  using Words = std::vector<std::string_view>;

  Commands() = default;
  explicit Commands(const Words& words) { add(words); }

  /// One command: `words` and then `more`.
  void add(const Words& words, const Words& more = {});
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  void head(char mark, std::size_t number);

  std::string bytes_;
  std::size_t count_ = 0;
};

/// What is known of the server's clock: what it showed in an answer, and when the question was sent.
class ServerClock {
 public:
  void show(Timestamp server, SteadyTime asked) noexcept {
    server_ = server;
    asked_ = asked;
  }
  /// At least the server's now, as long as both clocks run alike.
  [[nodiscard]] Timestamp latest(SteadyTime now) const noexcept {
    return server_ + std::chrono::ceil<std::chrono::milliseconds>(now - asked_);
  }
  [[nodiscard]] bool is_stale(SteadyTime now) const noexcept {
    return now - asked_ > std::chrono::minutes{1};
  }

 private:
  Timestamp server_{};
  SteadyTime asked_{};
};

/// One connection: connected, authenticated and on its database, or not there at all.
///
/// hiredis connects and takes replies apart; sending and waiting are done here, because each must end at a
/// deadline, must not raise SIGPIPE and must tell what had been sent.
class Connection {
 public:
  /// Errors: `Error`, and `Broken` when the connection ends during the handshake.
  explicit Connection(const RedisOptions& options);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  /// Sends and waits for the answers, within the command time-out. Error replies are answers.
  [[nodiscard]] std::vector<ReplyPtr> exchange(const Commands& commands);
  /// The one answer to one command. Throws `ErrorReply` for an error.
  [[nodiscard]] ReplyPtr ask(const Commands& command);
  /// Runs a script on one key; sends its text when the server does not have it.
  [[nodiscard]] ReplyPtr run(ScriptName name, std::string_view key,
                             const Commands::Words& arguments);
  /// The same for any script; `behind` are the words behind its name: the number of keys, the keys, the arguments.
  [[nodiscard]] ReplyPtr run(const RedisScript& script, const Commands::Words& behind);
  /// The same commands as `run` sends, for a pipeline; `text` sends the script itself.
  enum class Naming : std::uint8_t { sha1, text };
  void add_run(Commands& commands, ScriptName name, std::string_view key,
               const Commands::Words& arguments, Naming naming) const;
  static void add_script(Commands& commands, const RedisScript& script,
                         const Commands::Words& behind, Naming naming);

  /// Whether an idle connection can still be used: nothing has come in, not even its end.
  [[nodiscard]] bool is_quiet() const noexcept;

  [[nodiscard]] Dialect dialect() const noexcept { return dialect_; }
  [[nodiscard]] const std::string& role() const noexcept { return role_; }
  [[nodiscard]] ServerClock& clock() noexcept { return clock_; }
  /// Notes the server's clock as an answer to the last exchange shows it.
  void show_clock(std::int64_t milliseconds) noexcept {
    clock_.show(Timestamp{std::chrono::milliseconds{milliseconds}}, last_sent_);
  }
  /// The same for a reply to TIME.
  void show_clock(const redisReply& time);

 private:
  [[nodiscard]] static Commands::Words behind_script(std::string_view key,
                                                     const Commands::Words& arguments);

  struct ContextDeleter {
    void operator()(redisContext* context) const noexcept { redisFree(context); }
  };

  /// What a request that cannot be sent has done, before its first byte went out and after.
  struct AtStake {
    Broken::Progress before;
    Broken::Progress after;
  };

  void connect(const RedisOptions& options);
  void encrypt(const RedisOptions& options, SteadyTime deadline);
  /// Of one that does not know HELLO.
  [[nodiscard]] std::string version_of_an_old_server();
  /// Whether what came from the server ends in its refusal to go on.
  [[nodiscard]] bool was_refused();
  void greet(const RedisOptions& options);
  void send(std::string_view bytes, SteadyTime deadline, AtStake at_stake);
  void write(std::string_view bytes, SteadyTime deadline, AtStake at_stake);
  [[nodiscard]] ReplyPtr receive(SteadyTime deadline);
  [[nodiscard]] std::string_view read(SteadyTime deadline);
  [[nodiscard]] std::string_view read_encrypted(SteadyTime deadline);
  [[nodiscard]] bool wait_for(short events, SteadyTime deadline) const noexcept;

  std::unique_ptr<redisContext, ContextDeleter> context_;
  std::unique_ptr<Tls> tls_;  ///< none: not encrypted
  std::vector<char> received_;
  std::vector<char> decrypted_;
  std::chrono::milliseconds command_timeout_;
  Dialect dialect_ = Dialect::since_7_0;
  std::string role_;
  ServerClock clock_;
  SteadyTime last_sent_{};
};

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
