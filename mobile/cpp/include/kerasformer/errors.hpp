// The errors of this library, named as in Python. Messages say what is wrong, what was expected, what was received, and what
// to do.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace kerasformer {

// The base of all errors of this library.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A bundle that is incomplete, changed, or written by a newer version.
class BundleError : public Error {
 public:
  using Error::Error;
};

// An invalid argument or text.
class InputError : public Error {
 public:
  using Error::Error;
};

// More tokens than the model or its cache can hold.
class CapacityError : public InputError {
 public:
  CapacityError(const std::string& message, size_t most, size_t received)
      : InputError(message), most(most), received(received) {}

  const size_t most;      // the allowed number of tokens
  const size_t received;  // the number of tokens that there were
};

// Generation settings that contradict each other or that are unsupported.
class GenerationError : public Error {
 public:
  using Error::Error;
};

// A tokenizer that is missing, damaged or unsupported.
class TokenizerError : public Error {
 public:
  using Error::Error;
};

// An engine that cannot be loaded, or that fails.
class EngineError : public Error {
 public:
  using Error::Error;
};

// The caller cancelled a call that has no partial result.
class Cancelled : public Error {
 public:
  using Error::Error;
};

}  // namespace kerasformer
