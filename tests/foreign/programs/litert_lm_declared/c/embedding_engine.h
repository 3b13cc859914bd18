// The functions of LiteRT-LM 0.18 that the C++ of the model card calls, as the library exports them; the wheel has no header.
#pragma once

#include <cstddef>

struct LiteRtLmEmbeddingEngineSettings;
struct LiteRtLmEmbeddingEngine;
struct LiteRtLmEmbeddingOptions;
struct LiteRtLmEmbeddingResponse;
struct LiteRtLmInputData;
enum LiteRtLmInputDataType { kLiteRtLmInputDataTypeText };

extern "C" {
LiteRtLmEmbeddingEngineSettings* litert_lm_embedding_engine_settings_create(const char* model, const char* backend,
                                                                            const char* vision, const char* audio);
void litert_lm_embedding_engine_settings_set_cache_dir(LiteRtLmEmbeddingEngineSettings* settings, const char* folder);
LiteRtLmEmbeddingEngine* litert_lm_embedding_engine_create(const LiteRtLmEmbeddingEngineSettings* settings);
LiteRtLmEmbeddingOptions* litert_lm_embedding_options_create();
void litert_lm_embedding_options_set_normalize(LiteRtLmEmbeddingOptions* options, bool normalize);
LiteRtLmInputData* litert_lm_input_data_create(LiteRtLmInputDataType type, const void* data, std::size_t size);
LiteRtLmEmbeddingResponse* litert_lm_embedding_engine_compute_embedding(LiteRtLmEmbeddingEngine* engine,
                                                                        const LiteRtLmInputData* const* inputs,
                                                                        std::size_t count,
                                                                        const LiteRtLmEmbeddingOptions* options);
std::size_t litert_lm_embedding_response_get_size(const LiteRtLmEmbeddingResponse* response);
const float* litert_lm_embedding_response_get_values(const LiteRtLmEmbeddingResponse* response);
}
