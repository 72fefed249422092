#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message_lite.h>

#include "idempotency/codec.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail {

inline constexpr std::size_t most_protobuf_bytes = std::numeric_limits<int>::max();

/// With the entries of map fields in one order.
[[nodiscard]] inline std::string deterministic_protobuf(
    const google::protobuf::MessageLite& message) {
  if (!message.IsInitialized()) {
    throw_codec_unencodable("a required field of the message is missing");
  }
  if (message.ByteSizeLong() > most_protobuf_bytes) {
    throw_codec_unencodable("the message is larger than 2 GiB");
  }
  std::string bytes;
  bool good = false;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    good = message.SerializeToCodedStream(&coded) && !coded.HadError();
  }
  if (!good) throw_codec_unencodable("protobuf cannot serialise the message");
  return bytes;
}

/// The same, if they can be read back.
[[nodiscard]] inline std::string readable_protobuf(const google::protobuf::MessageLite& message) {
  std::string bytes = deterministic_protobuf(message);
  // Text that is not UTF-8 is written without complaint and refused when it is read.
  const std::unique_ptr<google::protobuf::MessageLite> probe(message.New());
  if (!probe->ParseFromString(bytes)) {
    throw_codec_unencodable("a string of the message is not UTF-8");
  }
  return bytes;
}

/// Whether `bytes` were those of such a message.
[[nodiscard]] inline bool parse_protobuf(std::string_view bytes,
                                         google::protobuf::MessageLite& message) {
  return bytes.size() <= most_protobuf_bytes &&
         message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace detail

/// A codec for a protobuf message: derive `Codec<T>` from it. Its name is the message's full name.
///
///     template <>
///     struct idempotency::Codec<shop::Receipt> : idempotency::ProtobufCodec<shop::Receipt> {};
///
/// Equal messages give equal bytes within one version of the message and of protobuf.
///
/// Errors: `Errc::codec_unencodable` when a required field is missing, a string is not UTF-8 or the
/// message is larger than 2 GiB; `Errc::codec_corrupt` when the recorded bytes are not those of a
/// message.
template <std::derived_from<google::protobuf::MessageLite> T>
struct ProtobufCodec {
  [[nodiscard]] static std::string name() {
    return std::string(T::default_instance().GetTypeName());
  }

  static void encode(const T& message, std::string& out) {
    append_sized(out, detail::readable_protobuf(message));
  }

  static T decode(ByteReader& in) {
    T message;
    if (!detail::parse_protobuf(in.take_sized(), message)) {
      detail::throw_codec_corrupt("the bytes are not those of the protobuf message");
    }
    return message;
  }
};

}  // namespace v0
}  // namespace idempotency
