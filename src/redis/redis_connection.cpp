#include "redis/redis_connection.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <new>
#include <system_error>

#include "redis/redis_tls.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

namespace {

using std::chrono::milliseconds;

constexpr const char* too_old =
    "redis store: the server is older than Redis 6.0, which this library needs";
constexpr std::size_t received_bytes = std::size_t{16} * 1024;

timeval to_timeval(milliseconds span) noexcept {
  timeval time{};
  time.tv_sec = static_cast<decltype(time.tv_sec)>(span.count() / 1000);
  time.tv_usec = static_cast<decltype(time.tv_usec)>(span.count() % 1000 * 1000);
  return time;
}

std::string words_of(int error) { return std::system_category().message(error); }

[[noreturn]] void refuse(const char* why, std::string detail = {}) {
  throw Error(Errc::store_refused, why, std::move(detail));
}

/// The value of one field of a HELLO reply.
std::string field(const redisReply& hello, std::string_view name) {
  if (hello.type != REDIS_REPLY_ARRAY) return {};
  for (std::size_t i = 0; i + 1 < hello.elements; i += 2) {
    const redisReply& key = *hello.element[i];
    const redisReply& value = *hello.element[i + 1];
    if (key.type == REDIS_REPLY_STRING && std::string_view(key.str, key.len) == name &&
        value.type == REDIS_REPLY_STRING) {
      return std::string(value.str, value.len);
    }
  }
  return {};
}

int major_version(const std::string& version) noexcept {
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  return major;
}

}  // namespace

void Commands::add(const Words& words, const Words& more) {
  std::size_t size = 16;
  for (const Words* part : {&words, &more}) {
    for (const std::string_view word : *part)
      size += word.size() + 16;
  }
  bytes_.reserve(bytes_.size() + size);
  head('*', words.size() + more.size());
  for (const Words* part : {&words, &more}) {
    for (const std::string_view word : *part) {
      head('$', word.size());
      bytes_ += word;
      bytes_ += "\r\n";
    }
  }
  ++count_;
}

void Commands::head(char mark, std::size_t number) {
  char digits[24];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  static_cast<void>(error);
  bytes_ += mark;
  bytes_.append(digits, end);
  bytes_ += "\r\n";
}

Connection::Connection(const RedisOptions& options)
    : received_(received_bytes), command_timeout_(options.command_timeout) {
  const SteadyTime deadline = std::chrono::steady_clock::now() + options.connect_timeout;
  connect(options);
  if (options.encryption == RedisEncryption::tls) encrypt(options, deadline);
  try {
    greet(options);
  } catch (const Broken& broken) {
    if (!tls_ || broken.cause != Broken::Cause::closed) throw;
    // A server that does not like our certificate says so only now, and its words are lost when it closes before it has
    // read ours.
    if (was_refused()) {
      refuse("redis store: the server refuses to speak TLS with this client", broken.words);
    }
    throw Broken{broken.progress, broken.cause,
                 broken.words + " (right after the handshake: it may want a certificate)"};
  }
}

Connection::~Connection() = default;

void Connection::connect(const RedisOptions& options) {
  const timeval timeout = to_timeval(options.connect_timeout);
  context_.reset(options.unix_socket.empty()
                     ? redisConnectWithTimeout(options.host.c_str(), options.port, timeout)
                     : redisConnectUnixWithTimeout(options.unix_socket.c_str(), timeout));
  if (!context_) throw std::bad_alloc();
  if (context_->err != 0) {
    throw Error(Errc::store_unavailable,
                "redis store: the server cannot be reached; repeat the call when it is there",
                context_->errstr);
  }
  if (options.unix_socket.empty() && redisEnableKeepAlive(context_.get()) != REDIS_OK) {
    throw Error(Errc::store_unavailable,
                "redis store: the connection ended at once; repeat the call", context_->errstr);
  }
  // Blocking, so that an answer that is on its way costs one system call; what must not block says so.
  const timeval patience = to_timeval(options.command_timeout);
  const int flags = ::fcntl(context_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(context_->fd, F_SETFL, flags & ~O_NONBLOCK) != 0 ||
      ::setsockopt(context_->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
      ::fcntl(context_->fd, F_SETFD, FD_CLOEXEC) != 0) {
    throw Error(Errc::store_unavailable, "redis store: the socket cannot be set up",
                words_of(errno));
  }
}

void Connection::encrypt(const RedisOptions& options, SteadyTime deadline) {
  constexpr AtStake nothing{Broken::Progress::nothing_executed, Broken::Progress::nothing_executed};
  tls_ = std::make_unique<Tls>(options);
  decrypted_.resize(received_bytes);
  while (true) {
    const Tls::Progress progress = tls_->shake_hands();
    write(tls_->outgoing(), deadline, nothing);
    tls_->sent();
    if (progress == Tls::Progress::done) return;
    try {
      tls_->incoming(read(deadline));
    } catch (const Broken& broken) {
      if (broken.cause != Broken::Cause::timed_out) throw;
      throw Error(Errc::store_unavailable,
                  "redis store: the server did not shake hands in time; see that this port speaks "
                  "TLS, or repeat the call",
                  broken.words);
    }
  }
}

std::string Connection::version_of_an_old_server() {
  const std::vector<ReplyPtr> replies = exchange(Commands({"INFO", "server"}));
  const redisReply& reply = *replies.front();
  if (is_error(reply)) return std::string(reply.str, reply.len);
  const std::string_view text = as_text(reply).value_or("");
  constexpr std::string_view name = "redis_version:";
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + name.size());
  return std::string(rest.substr(0, rest.find('\r')));
}

bool Connection::was_refused() {
  try {
    while (!tls_->has_failed())
      static_cast<void>(read_encrypted(SteadyTime{}));
  } catch (const TlsFailure&) {
    return true;
  } catch (const Broken&) {  // no more has come
  }
  return tls_->has_failed();
}

void Connection::greet(const RedisOptions& options) {
  Commands commands;
  Commands::Words hello{"HELLO", "2"};
  if (!options.password.empty()) {
    hello.push_back("AUTH");
    hello.push_back(options.username.empty() ? std::string_view("default")
                                             : std::string_view(options.username));
    hello.push_back(options.password);
  }
  hello.push_back("SETNAME");
  hello.push_back("idempotency");
  commands.add(hello);
  const std::string database = std::to_string(options.database);
  if (options.database != 0) commands.add({"SELECT", database});
  commands.add({"TIME"});

  const std::vector<ReplyPtr> replies = exchange(commands);
  const redisReply& greeting = *replies.front();
  if (is_error(greeting) && std::string_view(greeting.str, greeting.len).find("unknown command") !=
                                std::string_view::npos) {
    refuse(too_old, version_of_an_old_server());
  }
  for (const ReplyPtr& reply : replies)
    throw_if_error(*reply);
  const std::string version = field(greeting, "version");
  const int major = major_version(version);
  if (major < 6) refuse(too_old, version);
  dialect_ = major >= 7 ? Dialect::since_7_0 : Dialect::before_7_0;
  role_ = field(greeting, "role");
  show_clock(*replies.back());
}

void Connection::show_clock(const redisReply& time) {
  std::int64_t seconds = 0;
  std::int64_t microseconds = 0;
  const auto parse = [&](std::size_t index, std::int64_t& into) {
    const std::string_view text = as_text(element(time, index)).value_or("");
    std::from_chars(text.data(), text.data() + text.size(), into);
  };
  parse(0, seconds);
  parse(1, microseconds);
  show_clock(seconds * 1000 + microseconds / 1000);
}

bool Connection::wait_for(short events, SteadyTime deadline) const noexcept {
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{context_->fd, events, 0};
    const int ready =
        ::poll(&waiting, 1, static_cast<int>(std::max(left, milliseconds{0}).count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the next read or write tells
    if (left <= milliseconds{0}) return false;
  }
}

void Connection::send(std::string_view bytes, SteadyTime deadline, AtStake at_stake) {
  if (!tls_) {
    write(bytes, deadline, at_stake);
    return;
  }
  constexpr std::size_t piece = std::size_t{256} * 1024;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    tls_->encrypt(bytes.substr(0, piece));
    write(tls_->outgoing(), deadline, at_stake);
    tls_->sent();
    at_stake.before = at_stake.after;
  }
}

void Connection::write(std::string_view bytes, SteadyTime deadline, AtStake at_stake) {
  std::size_t sent = 0;
  const auto broken = [&](Broken::Cause cause, std::string words) {
    return Broken{sent == 0 ? at_stake.before : at_stake.after, cause, std::move(words)};
  };
  while (sent < bytes.size()) {
    const ssize_t count =
        ::send(context_->fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(POLLOUT, deadline)) {
        throw broken(Broken::Cause::timed_out, "the request could not be sent in time");
      }
    } else if (errno != EINTR) {
      throw broken(Broken::Cause::closed, words_of(errno));
    }
  }
}

ReplyPtr Connection::receive(SteadyTime deadline) {
  while (true) {
    void* reply = nullptr;
    if (redisReaderGetReply(context_->reader, &reply) != REDIS_OK) {
      throw Broken{Broken::Progress::sent, Broken::Cause::closed, context_->reader->errstr};
    }
    if (reply != nullptr) return ReplyPtr(static_cast<redisReply*>(reply));
    const std::string_view bytes = tls_ ? read_encrypted(deadline) : read(deadline);
    if (redisReaderFeed(context_->reader, bytes.data(), bytes.size()) != REDIS_OK) {
      throw Broken{Broken::Progress::sent, Broken::Cause::closed, context_->reader->errstr};
    }
  }
}

std::string_view Connection::read(SteadyTime deadline) {
  const auto slack = std::min<std::chrono::nanoseconds>(command_timeout_ / 8, milliseconds{5});
  while (true) {
    // The socket's own time-out is the command's: at the start of it, no poll is needed before.
    const bool blocks = deadline - std::chrono::steady_clock::now() >= command_timeout_ - slack;
    if (!blocks && !wait_for(POLLIN, deadline)) {
      throw Broken{Broken::Progress::sent, Broken::Cause::timed_out, "no answer came in time"};
    }
    const ssize_t count =
        ::recv(context_->fd, received_.data(), received_.size(), blocks ? 0 : MSG_DONTWAIT);
    if (count > 0) return {received_.data(), static_cast<std::size_t>(count)};
    if (count == 0) {
      throw Broken{Broken::Progress::sent, Broken::Cause::closed,
                   "the server closed the connection"};
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      throw Broken{Broken::Progress::sent, Broken::Cause::closed, words_of(errno)};
    }
  }
}

std::string_view Connection::read_encrypted(SteadyTime deadline) {
  constexpr AtStake all{Broken::Progress::sent, Broken::Progress::sent};
  while (true) {
    const Tls::Decrypted decrypted = tls_->decrypt(decrypted_.data(), decrypted_.size());
    if (decrypted.reading == Tls::Reading::text) return {decrypted_.data(), decrypted.size};
    if (decrypted.reading == Tls::Reading::ended) {
      throw Broken{Broken::Progress::sent, Broken::Cause::closed,
                   "the server closed the connection"};
    }
    write(tls_->outgoing(), deadline, all);  // its own talk, such as new keys
    tls_->sent();
    tls_->incoming(read(deadline));
  }
}

std::vector<ReplyPtr> Connection::exchange(const Commands& commands) {
  last_sent_ = std::chrono::steady_clock::now();
  const SteadyTime deadline = last_sent_ + command_timeout_;
  // The server runs no command that it has not got to its end.
  const AtStake at_stake{
      Broken::Progress::nothing_executed,
      commands.count() == 1 ? Broken::Progress::nothing_executed : Broken::Progress::sent};
  try {
    send(commands.bytes(), deadline, at_stake);
    std::vector<ReplyPtr> replies;
    replies.reserve(commands.count());
    while (replies.size() < commands.count())
      replies.push_back(receive(deadline));
    return replies;
  } catch (const TlsFailure& failure) {
    throw Broken{Broken::Progress::sent, Broken::Cause::closed, failure.words};
  }
}

ReplyPtr Connection::ask(const Commands& command) {
  ReplyPtr reply = std::move(exchange(command).front());
  throw_if_error(*reply);
  return reply;
}

Commands::Words Connection::behind_script(std::string_view key, const Commands::Words& arguments) {
  Commands::Words words;
  words.reserve(arguments.size() + 2);
  words.push_back("1");
  words.push_back(key);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

void Connection::add_script(Commands& commands, const RedisScript& script,
                            const Commands::Words& behind, Naming naming) {
  if (naming == Naming::sha1) {
    commands.add({"EVALSHA", script.sha1()}, behind);
  } else {
    commands.add({"EVAL", script.body()}, behind);
  }
}

void Connection::add_run(Commands& commands, ScriptName name, std::string_view key,
                         const Commands::Words& arguments, Naming naming) const {
  add_script(commands, script(name, dialect_), behind_script(key, arguments), naming);
}

ReplyPtr Connection::run(ScriptName name, std::string_view key, const Commands::Words& arguments) {
  return run(script(name, dialect_), behind_script(key, arguments));
}

ReplyPtr Connection::run(const RedisScript& script, const Commands::Words& behind) {
  const auto answer = [&](Naming naming) {
    Commands command;
    add_script(command, script, behind, naming);
    return std::move(exchange(command).front());
  };
  ReplyPtr reply = answer(Naming::sha1);
  if (is_noscript(*reply)) reply = answer(Naming::text);
  throw_if_error(*reply);
  return reply;
}

bool Connection::is_quiet() const noexcept {
  if (context_->reader->pos != context_->reader->len || (tls_ && !tls_->is_quiet())) return false;
  pollfd waiting{context_->fd, POLLIN | POLLRDHUP, 0};
  const int ready = ::poll(&waiting, 1, 0);
  return ready == 0;
}

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
