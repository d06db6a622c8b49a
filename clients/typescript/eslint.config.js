import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "docs", "src/proto", "*.config.*", "scripts", "samples/nextjs", "bench"] },
  ...tseslint.configs.strictTypeChecked,
  { languageOptions: { parserOptions: { project: "./tsconfig.json" } } },
  {
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true, allowBoolean: true }],
    },
  },
);
