plugins {
    id("com.android.application")
    id("org.jetbrains.kotlin.android")
    id("org.jetbrains.kotlin.plugin.compose")
}

android {
    namespace = "io.github.kerasformer.example"
    compileSdk = 36

    defaultConfig {
        applicationId = "io.github.kerasformer.example"
        minSdk = 24
        targetSdk = 36
        versionCode = 1
        versionName = "1.0"
    }

    buildFeatures { compose = true }
    // Models are compressed hardly at all, and an uncompressed one is copied faster.
    androidResources { noCompress += listOf("tflite", "onnx", "json") }
    sourceSets["main"].assets.srcDir(layout.buildDirectory.dir("bundles"))
}

kotlin { jvmToolchain(17) }

/** Copies the bundles into the assets: `-Pbundles=FOLDER`, by default `bundles` beside this project. */
val copyBundles by tasks.registering(Sync::class) {
    from(providers.gradleProperty("bundles").map { file(it) }.orElse(rootProject.file("bundles"))) {
        include("*/kerasformer.json", "*/*.tflite", "*/*tokenizer*.json", "*/generation_config.json")
        into("bundles")
    }
    into(layout.buildDirectory.dir("bundles"))
    doLast {
        check(destinationDir.resolve("bundles").list()?.isNotEmpty() == true) {
            "No bundle was found. Export some with kerasformer, see README.md, and name their folder with -Pbundles=FOLDER"
        }
    }
}

tasks.named("preBuild") { dependsOn(copyBundles) }

dependencies {
    implementation("io.github.kerasformer:kerasformer:0.1.0")
    implementation("com.google.ai.edge.litert:litert:2.3.0")
    implementation("org.jetbrains.kotlinx:kotlinx-coroutines-android:1.10.2")
    implementation(platform("androidx.compose:compose-bom:2025.10.00"))
    implementation("androidx.compose.material3:material3")
    implementation("androidx.activity:activity-compose:1.11.0")
    implementation("androidx.lifecycle:lifecycle-viewmodel-compose:2.9.4")
}
