#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/child_process.hpp"

namespace idempotency::testing_support {

/// `idempotencyctl serve` on a free port of the loopback, killed when this is destroyed.
class ConsoleProcess {
 public:
  static constexpr const char* token = "correct-horse-battery-staple";

  /// `words`: the command line behind `serve`. `environment`: NAME=VALUE.
  explicit ConsoleProcess(const std::string& store, const std::vector<std::string>& words = {},
                          std::vector<std::string> environment = {})
      : process_(
            ChildProcess::start(command(store, words), without_audit(std::move(environment)))) {
    std::string text;
    while (const auto line = process_.next_line()) {
      const auto said = nlohmann::json::parse(*line, nullptr, false);
      if (said.is_object()) {
        url_ = said.at("url");
        url_.pop_back();  // the path
        if (url_.starts_with("http://0.0.0.0:")) url_.replace(7, 7, "127.0.0.1");
        return;
      }
      text += *line + '\n';
    }
    ADD_FAILURE() << "the console did not start: " << text;
  }

  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  [[nodiscard]] ChildProcess& process() noexcept { return process_; }

  [[nodiscard]] httplib::Result get(const std::string& path,
                                    const httplib::Headers& headers = {}) const {
    httplib::Client client(url_);
    return client.Get(path, headers);
  }
  /// The body of an answer that is expected to have this status.
  [[nodiscard]] nlohmann::json json(const std::string& path, int status = 200) const {
    return body_of(get(path), status);
  }
  [[nodiscard]] httplib::Result post(const std::string& body, const httplib::Headers& headers,
                                     const std::string& type = "application/json") const {
    httplib::Client client(url_);
    return client.Post("/api/settle", headers, body, type);
  }
  /// With the token.
  [[nodiscard]] nlohmann::json settle(const nlohmann::json& body, int status = 200) const {
    return body_of(post(body.dump(), {{"Authorization", std::string("Bearer ") + token}}), status);
  }
  /// The body of the first answer that is as wanted; asks again until then, or for a minute.
  template <class Wanted>
  nlohmann::json await(const std::string& path, Wanted wanted) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes{1};
    nlohmann::json last;
    while (std::chrono::steady_clock::now() < end) {
      const httplib::Result result = get(path);
      if (result) last = nlohmann::json::parse(result->body, nullptr, false);
      if (result && result->status == 200 && wanted(last)) return last;
      std::this_thread::sleep_for(std::chrono::milliseconds{5});  // there is nothing to wait for
    }
    ADD_FAILURE() << path << " never was as wanted: " << last.dump();
    return last;
  }

  /// Until it has seen the store.
  void await_look() const {
    await("/api/overview", [](const nlohmann::json& answer) { return answer.contains("at"); });
  }

 private:
  static std::vector<std::string> command(const std::string& store,
                                          const std::vector<std::string>& words) {
    std::vector<std::string> all{IDEMPOTENCYCTL, "--store", store, "--json", "serve"};
    if (std::find(words.begin(), words.end(), "--listen") == words.end()) {
      all.insert(all.end(), {"--listen", "127.0.0.1:0"});
    }
    if (std::find(words.begin(), words.end(), "--every") == words.end()) {
      all.insert(all.end(), {"--every", "100ms"});
    }
    all.insert(all.end(), {"--metrics-every", "100ms"});
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }
  static std::vector<std::string> without_audit(std::vector<std::string> environment) {
    environment.emplace_back("IDEMPOTENCY_AUDIT_FILE=");
    return environment;
  }
  static nlohmann::json body_of(const httplib::Result& result, int status) {
    if (!result) {
      ADD_FAILURE() << "no answer: " << httplib::to_string(result.error());
      return nlohmann::json::object();
    }
    EXPECT_EQ(result->status, status) << result->body;
    return nlohmann::json::parse(result->body, nullptr, false);
  }

  ChildProcess process_;
  std::string url_;
};

}  // namespace idempotency::testing_support
