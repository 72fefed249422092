// The console in the browser: who may ask for what over HTTP. What is answered is in console_api.cpp, the page in console.html.

#include <arpa/inet.h>
#include <httplib.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "commands.hpp"
#include "console_api.hpp"
#include "console_page.hpp"
#include "settle.hpp"
#include "text.hpp"

namespace idempotencyctl {

using std::chrono::milliseconds;

namespace {

constexpr std::size_t threads = 8;
constexpr std::size_t most_body_bytes = std::size_t{64} * 1024;
constexpr std::size_t shortest_token = 16;

/// Where to listen.
struct Listen {
  std::string host;
  int port = 0;

  [[nodiscard]] bool is_loopback() const {
    in_addr address{};
    const bool is_v4 = ::inet_pton(AF_INET, host.c_str(), &address) == 1;
    return host == "localhost" || host == "::1" || (is_v4 && host.starts_with("127."));
  }
  [[nodiscard]] bool is_any() const { return host == "0.0.0.0" || host == "::"; }
};

Listen parse_listen(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Listen listen;
  const char* end = text.data() + text.size();
  const auto [stop, problem] =
      colon == std::string::npos ? std::from_chars_result{text.data(), std::errc::invalid_argument}
                                 : std::from_chars(text.data() + colon + 1, end, listen.port);
  if (problem != std::errc{} || stop != end || listen.port < 0 || listen.port > 65'535 ||
      colon == 0) {
    throw Ending(Exit::usage, "--listen: '" + printable(text) + "' is no HOST:PORT");
  }
  listen.host = text.substr(0, colon);
  if (listen.host.front() == '[' && listen.host.back() == ']') {
    listen.host = listen.host.substr(1, listen.host.size() - 2);
  }
  return listen;
}

/// Empty: there is none, and nothing can be settled.
std::string read_token(const std::string& file) {
  std::string token;
  if (!file.empty()) {
    token = bytes_of(file);
    struct stat status {};
    if (::stat(file.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0) {
      std::cerr << "everybody on this host can read the token in " << printable(file) << '\n';
    }
  } else if (const char* variable = std::getenv("IDEMPOTENCY_CONSOLE_TOKEN")) {
    token = variable;
  } else {
    return {};
  }
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r'))
    token.pop_back();
  const bool fits =
      token.size() >= shortest_token &&
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!fits) {
    throw Ending(Exit::usage,
                 "the token has at least 16 characters, and no spaces: openssl rand -hex 32");
  }
  return token;
}

/// In a time that says nothing of where they differ.
bool is_same_secret(std::string_view a, std::string_view b) {
  const auto of_a = idem::Fingerprint::of_bytes(a).current().digest;
  const auto of_b = idem::Fingerprint::of_bytes(b).current().digest;
  return CRYPTO_memcmp(of_a.data(), of_b.data(), of_a.size()) == 0;
}

/// 'sha256-...', as a Content-Security-Policy names what stands in the page between two tags.
std::string source_of(std::string_view page, std::string_view begin, std::string_view end) {
  const std::size_t from = page.find(begin) + begin.size();
  const std::string_view text = page.substr(from, page.find(end, from) - from);
  const auto digest = idem::Fingerprint::of_bytes(text).current().digest;
  std::string base64(4 * ((digest.size() + 2) / 3) + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(base64.data()), digest.data(),
                                     static_cast<int>(digest.size()));
  base64.resize(static_cast<std::size_t>(length));
  return "'sha256-" + base64 + "'";
}

httplib::Headers headers_of_all() {
  const std::string policy = "default-src 'none'; script-src " +
                             source_of(console_page, "<script>", "</script>") + "; style-src " +
                             source_of(console_page, "<style>", "</style>") +
                             "; connect-src 'self'; img-src data:; base-uri 'none'; form-action "
                             "'none'; frame-ancestors 'none'";
  return {{"Content-Security-Policy", policy},
          {"X-Content-Type-Options", "nosniff"},
          {"X-Frame-Options", "DENY"},
          {"Cache-Control", "no-store"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cross-Origin-Resource-Policy", "same-origin"}};
}

/// A host without its port, in small letters.
std::string name_in(std::string_view host) {
  const std::size_t end =
      host.starts_with('[') ? host.find(']') + 1 : std::min(host.rfind(':'), host.size());
  std::string name(host.substr(0, end));
  if (name.size() > 2 && name.front() == '[') name = name.substr(1, name.size() - 2);
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return name;
}

/// Whether a body of this length, if there is one, is read at all.
bool is_short(const std::string& content_length) {
  if (content_length.empty()) return true;
  std::size_t length = 0;
  const char* end = content_length.data() + content_length.size();
  const auto [stop, problem] = std::from_chars(content_length.data(), end, length);
  return problem == std::errc{} && stop == end && length <= most_body_bytes;
}

bool is_ip_address(const std::string& name) {
  in6_addr bytes{};
  return ::inet_pton(AF_INET, name.c_str(), &bytes) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &bytes) == 1;
}

/// The console's HTTP side.
class ConsoleServer {
 public:
  ConsoleServer(ConsoleApi& api, Listen listen, std::string token,
                const std::vector<std::string>& allowed_hosts)
      : api_(api), listen_(std::move(listen)), token_(std::move(token)) {
    for (const std::string& host : allowed_hosts)
      names_.push_back(name_in(host));
    names_.push_back(name_in(
        listen_.host.find(':') == std::string::npos ? listen_.host : '[' + listen_.host + ']'));
    if (listen_.is_loopback()) names_.insert(names_.end(), {"localhost", "127.0.0.1", "::1"});
    set_up();
    route();
  }

  /// Where it listens from now on. Errors: `Ending` (usage).
  std::string bind() {
    const bool bound = listen_.port == 0 ? (listen_.port = http_.bind_to_any_port(listen_.host)) > 0
                                         : http_.bind_to_port(listen_.host, listen_.port);
    if (!bound) {
      throw Ending(Exit::usage, "cannot listen on " + printable(listen_.host) + ':' +
                                    std::to_string(listen_.port) + ": is it in use?");
    }
    const bool is_v6 = listen_.host.find(':') != std::string::npos;
    address_ = "http://" + (is_v6 ? '[' + listen_.host + ']' : listen_.host) + ':' +
               std::to_string(listen_.port);
    return address_;
  }
  /// Answers until `stop`.
  void serve() { http_.listen_after_bind(); }
  [[nodiscard]] bool is_running() const { return http_.is_running(); }
  void stop() { http_.stop(); }

 private:
  using Handled = httplib::Server::HandlerResponse;

  void set_up() {
    http_.new_task_queue = [] { return new httplib::ThreadPool(threads); };
    http_.set_socket_options([](socket_t socket) {  // no second program on the same port
      const int on = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    // A connection that says nothing must not hold one of the few threads.
    http_.set_keep_alive_max_count(1);
    http_.set_keep_alive_timeout(2);
    http_.set_read_timeout(std::chrono::seconds{5});
    http_.set_write_timeout(std::chrono::seconds{5});
    http_.set_payload_max_length(most_body_bytes);
    http_.set_default_headers(headers_of_all());
    http_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          return is_readable(request, response) ? Handled::Unhandled : Handled::Handled;
        });
    http_.set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;
      const char* text = response.status == 404   ? "this is not here"
                         : response.status == 413 ? "the body is too large"
                                                  : "the request cannot be understood";
      answer(response, {response.status, {{"code", "http"}, {"text", text}}});
    });
    http_.set_exception_handler(
        [](const httplib::Request&, httplib::Response& response, std::exception_ptr problem) {
          try {
            std::rethrow_exception(std::move(problem));
          } catch (...) {
            answer(response, ConsoleApi::failed());
          }
        });
  }

  void route() {
    http_.Get("/", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(console_page.data(), console_page.size(), "text/html; charset=utf-8");
    });
    read("/api/overview", [this](const Query&) { return api_.overview(); });
    read("/api/duplicates", [this](const Query&) { return api_.duplicates(); });
    read("/api/records", [this](const Query& query) { return api_.records(query); });
    read("/api/record", [this](const Query& query) { return api_.record(query); });
    read("/api/derived", [this](const Query& query) { return api_.derived(query); });
    // What is refused is refused when its body has been read, or the refusal would be lost with the connection.
    http_.Post("/api/settle", [this](const httplib::Request& request, httplib::Response& response) {
      if (!is_of_known_place(request, response) || !may_write(request, response)) return;
      answer(response, api_.settle(request.body, address_ + ", browser at " + request.remote_addr));
    });
  }

  template <class Call>
  void read(const char* path, Call call) {
    http_.Get(path, [call](const httplib::Request& request, httplib::Response& response) {
      answer(response, call([&](const char* name) { return request.get_param_value(name); }));
    });
  }

  static void answer(httplib::Response& response, const Answer& answer) {
    response.status = answer.status;
    response.set_content(line_of(answer.body) + '\n', "application/json");
  }
  static bool refuse(httplib::Response& response, int status, const char* code, const char* text) {
    answer(response, {status, {{"code", code}, {"text", text}}});
    return false;
  }

  /// Looks at what has no body, and at what the body is.
  bool is_readable(const httplib::Request& request, httplib::Response& response) const {
    if (request.has_header("Transfer-Encoding") || request.has_header("Content-Encoding")) {
      return refuse(response, 411, "http", "a body is sent as it is, and with its length");
    }
    if (!is_short(request.get_header_value("Content-Length"))) {  // or all of it would be read
      return refuse(response, 413, "http", "the body is too large");
    }
    if (request.has_header("Range")) return refuse(response, 416, "http", "no parts of answers");
    if (request.method != "GET" && request.method != "HEAD") return true;  // its route refuses it
    if (!is_of_known_place(request, response)) return false;
    const bool is_for_all = listen_.is_loopback() && !request.has_param("result");
    if (!request.path.starts_with("/api/") || is_for_all || token_.empty()) return true;
    return has_token(request, response);
  }

  bool is_of_known_place(const httplib::Request& request, httplib::Response& response) const {
    if (!is_known_host(request.get_header_value("Host"))) {
      return refuse(response, 421, "host",
                    "the console is not known by this name: --allowed-host NAME");
    }
    if (request.path.starts_with("/api/") && !is_of_this_site(request)) {
      return refuse(response, 403, "origin", "another site's page asks");
    }
    return true;
  }

  bool may_write(const httplib::Request& request, httplib::Response& response) const {
    if (token_.empty()) {
      return refuse(response, 403, "read_only",
                    "the console is read-only: it was started without a token");
    }
    const std::string type = request.get_header_value("Content-Type");
    if (type.substr(0, type.find(';')) != "application/json") {
      return refuse(response, 415, "http", "the body is application/json");
    }
    return has_token(request, response);
  }

  bool has_token(const httplib::Request& request, httplib::Response& response) const {
    const std::string given = request.get_header_value("Authorization");
    constexpr std::string_view scheme = "Bearer ";
    if (given.starts_with(scheme) &&
        is_same_secret(std::string_view(given).substr(scheme.size()), token_)) {
      return true;
    }
    response.set_header("WWW-Authenticate", "Bearer");
    if (!given.empty()) {
      std::cerr << "a wrong token, from " << printable(request.remote_addr) << std::endl;
    }
    return refuse(response, 401, "token",
                  given.empty() ? "this needs the console's token" : "this is not the token");
  }

  /// A page of another site whose name was made to lead here (DNS rebinding) names itself.
  bool is_known_host(const std::string& host) const {
    const std::string name = name_in(host);
    if (listen_.is_any() && is_ip_address(name)) return true;  // no name: nothing to rebind
    return std::find(names_.begin(), names_.end(), name) != names_.end();
  }

  static bool is_of_this_site(const httplib::Request& request) {
    const std::string site = request.get_header_value("Sec-Fetch-Site");
    if (!site.empty() && site != "same-origin" && site != "none") return false;
    if (!request.has_header("Origin")) return true;
    const std::string origin = request.get_header_value("Origin");
    const std::string host = request.get_header_value("Host");
    return origin == "http://" + host || origin == "https://" + host;
  }

  ConsoleApi& api_;
  Listen listen_;
  const std::string token_;
  std::vector<std::string> names_;
  std::string address_;  ///< once it is bound
  httplib::Server http_;
};

void check_exposure(const Listen& listen, const std::string& token, bool insecure) {
  if (listen.is_loopback()) return;
  if (!insecure || token.empty()) {
    throw Ending(
        Exit::usage,
        "beyond this host the console is served with a token, which reading needs as well, "
        "and under --insecure only, because nothing is encrypted. Better leave it on the "
        "loopback, and reach it through `ssh -L` or a proxy with TLS");
  }
  std::cerr << "WARNING: what the console shows, and its token, can be read on the way: nothing is "
               "encrypted\n";
}

milliseconds pause_of(const std::string& text) {
  return std::clamp<milliseconds>(parse_duration(text), milliseconds{100}, std::chrono::hours{1});
}

/// SIGINT and SIGTERM, in every thread that is begun after it: one of them is taken by `wait`.
class EndSignals {
 public:
  EndSignals() {
    ::sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM})
      ::sigaddset(&signals_, signal);
    ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  void wait() const {
    int signal = 0;
    while (::sigwait(&signals_, &signal) != 0) {
    }
  }

 private:
  sigset_t signals_{};
};

/// Answers until a signal asks it to end. False: it could not go on.
bool serve_until_asked(ConsoleServer& server, const EndSignals& signals) {
  std::atomic<bool> ended{false};
  std::thread serving([&] {
    server.serve();
    ended = true;
    ::kill(::getpid(), SIGTERM);  // wakes the wait
  });
  signals.wait();
  const bool was_asked = !ended;
  while (!ended && !server.is_running())
    std::this_thread::yield();
  server.stop();
  serving.join();
  return was_asked;
}

void announce(const Settings& settings, const std::string& address, bool settles) {
  if (settings.json) {
    std::cout << line_of({{"url", address + '/'}, {"settles", settles}}) << std::endl;
    return;
  }
  std::cout << address << "/\n"
            << (settles ? "settles records for those who have the token"
                        : "read-only: nothing can be settled without a token")
            << "; Ctrl-C ends it" << std::endl;
}

}  // namespace

Exit serve(const Settings& settings, const ServeOptions& options) {
  if (settings.store.empty()) static_cast<void>(open(settings));  // says so
  const Listen listen = parse_listen(options.listen);
  const std::string token = read_token(options.token_file);
  check_exposure(listen, token, options.insecure);
  if (!options.policies.empty()) {
    static_cast<void>(
        idem::PolicyTable::from_json_file(options.policies));  // now, and not at night
  }
  const EndSignals signals;
  Watch watch(settings, pause_of(options.every));
  Duplicates duplicates(options.metrics, pause_of(options.metrics_every));
  ConsoleOptions console{
      .margin = options.margin.empty() ? default_margin : parse_duration(options.margin),
      .policies = options.policies,
      .settles = !token.empty(),
      .shows_results = options.show_results};
  ConsoleApi api(settings, std::move(console), watch, duplicates);
  ConsoleServer server(api, listen, token, options.allowed_hosts);
  const std::string address = server.bind();
  announce(settings, address, !token.empty());
  const std::jthread looks([&](const std::stop_token& stop) { watch.run(stop); });
  const std::jthread reads([&](const std::stop_token& stop) { duplicates.run(stop); });
  if (!serve_until_asked(server, signals)) throw Ending(Exit::usage, "listening came to an end");
  return Exit::done;
}

}  // namespace idempotencyctl
