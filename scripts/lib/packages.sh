# Debian packages by purpose. Sourced.

packages_build=(
  build-essential
  cmake
  libcli11-dev
  libhiredis-dev
  libmariadb-dev
  libsqlite3-dev
  libssl-dev
  ninja-build
  nlohmann-json3-dev
  pkg-config
)

packages_demo=(
  "${packages_build[@]}"
  libcpp-httplib-dev
)

packages_test=(
  "${packages_demo[@]}"
  chromium
  clang
  curl
  libbenchmark-dev
  libboost-dev
  libfaketime
  libgmock-dev
  libgrpc++-dev
  libgtest-dev
  libprotobuf-dev
  prometheus-cpp-dev
  librabbitmq-dev
  librdkafka-dev
  mariadb-server
  node-got
  nodejs
  protobuf-compiler
  protobuf-compiler-grpc
  python3
  rabbitmq-server
  redis-server
  spin
  wrk
)

packages_ci=(
  "${packages_test[@]}"
  ccache
  clang-format
  clang-tidy
  git
  libclang-rt-14-dev
)
